#include "laconic/launch/fork_server.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

// The number of the server's end of a pair of sockets. A request is a packet of "NAME=VALUE" with a
// zero behind each, and the descriptors that become standard output and error, if any; the answer
// is the pid of the rank, from the rank itself once it is the launcher's child.
constexpr const char* kServerVariable = "LACONIC_FORK_SERVER";
constexpr std::size_t kMostRequestBytes = 64 << 10;
constexpr int kMostDescriptors = 2;
// Longer than a program takes to load from a slow disk. A rank that dies before it answers leaves
// its server waiting for further requests, and nobody would answer at all.
constexpr timeval kAnswerWithin{.tv_sec = 120, .tv_usec = 0};

struct Request {
  std::string variables;
  std::vector<int> descriptors;
};

void send_request(int socket, const Request& request) {
  iovec bytes{const_cast<char*>(request.variables.data()), request.variables.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!request.descriptors.empty()) {
    const std::size_t size = request.descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(head), request.descriptors.data(), size);
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
    throw SystemError("process that ranks are forked from", "ask", errno);
}

// Nothing when the launcher has closed its end.
std::optional<Request> take_request(int socket) {
  std::string text(kMostRequestBytes, '\0');
  iovec bytes{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = 0;
  do size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size <= 0) return std::nullopt;
  Request request;
  request.variables = text.substr(0, static_cast<std::size_t>(size));
  if (const cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr) {
    request.descriptors.resize((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(request.descriptors.data(), CMSG_DATA(head),
                request.descriptors.size() * sizeof(int));
  }
  return request;
}

void set_variables(std::string_view variables) {
  while (!variables.empty()) {
    const std::string entry(variables.substr(0, variables.find('\0')));
    variables.remove_prefix(std::min(entry.size() + 1, variables.size()));
    const std::size_t equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

// In the rank: waits until the process between has ended and it is the launcher's child, and makes
// of it what Child makes of a process before exec.
void become_rank(const Request& request, pid_t launcher, pid_t between, int socket) {
  while (::getppid() == between) ::sched_yield();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(kCannotStart);  // it has died
  ::setpgid(0, 0);  // as every rank has; that of the server would keep Ctrl-C away as well
  for (std::size_t i = 0; i < request.descriptors.size(); ++i) {
    ::dup2(request.descriptors[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO);
    ::close(request.descriptors[i]);
  }
  set_variables(request.variables);
  const pid_t self = ::getpid();
  if (::send(socket, &self, sizeof self, MSG_NOSIGNAL) != sizeof self) ::_exit(kCannotStart);
  ::close(socket);
}

// True in the rank.
bool fork_rank(const Request& request, pid_t launcher, int socket) {
  const pid_t between = ::fork();
  if (between == 0) {
    const pid_t self = ::getpid();
    const pid_t rank = ::fork();
    if (rank != 0) ::_exit(rank < 0 ? errno : 0);
    become_rank(request, launcher, self, socket);
    return true;
  }
  for (const int descriptor : request.descriptors) ::close(descriptor);
  // An answer that is no pid: what went wrong, as a negative number.
  int status = 0;
  pid_t error = -errno;
  if (between > 0) {
    ::waitpid(between, &status, 0);
    error = WIFEXITED(status) ? -WEXITSTATUS(status) : -EAGAIN;
  }
  if (error < 0) ::send(socket, &error, sizeof error, MSG_NOSIGNAL);
  return false;
}

}  // namespace

ForkServer::ForkServer(ChildSpec spec) : program_(spec.program) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw SystemError("sockets of ranks", "open", errno);
  socket_ = ends[0];
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kAnswerWithin, sizeof kAnswerWithin);
  ::fcntl(ends[1], F_SETFD, 0);  // the program finds it open
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  spec.environment[kServerVariable] = std::to_string(ends[1]);
  spec.has_own_output = true;  // what the loader has to complain of
  server_.emplace(spec);
  ::close(ends[1]);
}

ForkServer::~ForkServer() {
  ::close(socket_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

Child ForkServer::start(const Environment& variables, bool has_own_output) {
  Request request;
  for (const auto& [name, value] : variables) request.variables += name + "=" + value + '\0';
  ChildPipes pipes;
  if (!has_own_output) {
    pipes = make_pipes();
    request.descriptors = {pipes.output.write, pipes.error.write};
  }
  send_request(socket_, request);
  pid_t pid = 0;
  ssize_t size = 0;
  do size = ::recv(socket_, &pid, sizeof pid, 0);
  while (size < 0 && errno == EINTR);
  if (size < 0) pid = errno == EAGAIN ? -ETIMEDOUT : -errno;
  if (size == 0) pid = -ECHILD;  // the server has ended, and has said why
  pipes.close_write_ends();
  if (pid <= 0) throw SystemError(program_, "start ranks from", -pid);
  return Child(pid, pipes);
}

void serve_forks() {
  const char* text = std::getenv(kServerVariable);
  if (text == nullptr) return;
  const int socket = std::atoi(text);
  ::unsetenv(kServerVariable);
  const pid_t launcher = ::getppid();
  while (const std::optional<Request> request = take_request(socket))
    if (fork_rank(*request, launcher, socket)) return;
  ::_exit(0);
}

}  // namespace laconic
