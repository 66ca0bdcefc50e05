#include "laconic/launch/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

ChildPipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe of a rank", "open", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, before exec. Signals that we block to read them are not blocked there.
void prepare(pid_t parent, int input, const ChildPipes& pipes) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotStart);  // it died before the line above
  ::setpgid(0, 0);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGTTOU, SIG_IGN);  // a terminal may stop whom it does not know for writing to it
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (input < 0) input = ::open("/dev/null", O_RDONLY);
  if (input > STDIN_FILENO) ::dup2(input, STDIN_FILENO);
  if (pipes.output.write >= 0) ::dup2(pipes.output.write, STDOUT_FILENO);
  if (pipes.error.write >= 0) ::dup2(pipes.error.write, STDERR_FILENO);
}

}  // namespace

ChildPipes make_pipes() {
  return {make_pipe(), make_pipe()};
}

void ChildPipes::close_write_ends() {
  close_if_open(output.write);
  close_if_open(error.write);
}

Child::Child(const ChildSpec& spec) {
  ChildPipes pipes;
  if (!spec.has_own_output) pipes = make_pipes();
  std::vector<std::string> words = spec.words;
  std::vector<std::string> settings;
  for (const auto& [name, value] : spec.environment) settings.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers_to(words), envp = pointers_to(settings);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw SystemError(spec.program, "start", errno);
  if (pid_ == 0) {
    prepare(parent, spec.input, pipes);
    ::execve(spec.program.c_str(), argv.data(), envp.data());
    fmt::print(stderr, "laconic: {}: cannot run: {}\n", spec.program, std::strerror(errno));
    ::_exit(kCannotStart);
  }
  pipes.close_write_ends();
  output_ = pipes.output.read;
  error_ = pipes.error.read;
}

Child::Child(pid_t pid, const ChildPipes& pipes)
    : pid_(pid), output_(pipes.output.read), error_(pipes.error.read) {}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      output_(std::exchange(other.output_, -1)),
      error_(std::exchange(other.error_, -1)) {}

Child::~Child() {
  close_output();
  close_error();
  if (pid_ <= 0) return;
  send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

std::optional<int> Child::take_status() {
  int status = 0;
  if (pid_ == 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  return status;
}

void Child::close_output() {
  close_if_open(output_);
}

void Child::close_error() {
  close_if_open(error_);
}

}  // namespace laconic
