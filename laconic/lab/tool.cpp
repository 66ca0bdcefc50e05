#include "laconic/lab/tool.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe of a tool", "open", errno);
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    ::close(read);
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

// What posix_spawn() is to do between fork and exec.
struct SpawnSetting {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  SpawnSetting(const Pipe& output, const Pipe& error) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output.write, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, error.write, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSetting() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSetting(const SpawnSetting&) = delete;
  SpawnSetting& operator=(const SpawnSetting&) = delete;
};

pid_t spawn(const std::string& path, std::vector<std::string> words, const SpawnSetting& setting) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, path.c_str(), &setting.files, &setting.attributes, argv.data(), environ);
  if (error != 0) throw SystemError(path, "run", error);
  return pid;
}

// False at the end of what comes.
bool read_some(int descriptor, std::string& text) {
  char bytes[4096];
  const ssize_t n = ::read(descriptor, bytes, sizeof bytes);
  if (n > 0) text.append(bytes, static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

// Both at once: a tool that fills one pipe while we read the other would wait for ever.
void read_both(int output, int error, ToolOutcome& outcome) {
  pollfd ends[2] = {{output, POLLIN, 0}, {error, POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (::poll(ends, 2, -1) < 0) continue;
    if (ends[0].revents != 0 && !read_some(output, outcome.output)) ends[0].fd = -1;
    if (ends[1].revents != 0 && !read_some(error, outcome.error)) ends[1].fd = -1;
  }
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) throw SystemError("a tool", "wait for", errno);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string find_tool(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  for (const std::string& folder :
       split(std::string(path != nullptr ? path : "") + ":/usr/sbin:/sbin:/usr/bin:/bin", ':')) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

ToolOutcome run_tool(const std::vector<std::string>& words) {
  const std::string path = find_tool(words.at(0));
  if (path.empty()) throw SystemError(words[0], "run", ENOENT);
  Pipe output, error;
  const SpawnSetting setting(output, error);
  const pid_t pid = spawn(path, words, setting);
  output.close_write();
  error.close_write();
  ToolOutcome outcome;
  read_both(output.read, error.read, outcome);
  outcome.exit_code = wait_for(pid);
  outcome.error = trim(outcome.error);
  return outcome;
}

}  // namespace laconic
