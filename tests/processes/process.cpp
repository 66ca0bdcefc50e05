#include "tests/processes/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr const char* kOut = "/process.out";
constexpr const char* kErr = "/process.err";

void limit(int resource, std::uint64_t bytes) {
  const rlimit both{bytes, bytes};
  if (bytes > 0) ::setrlimit(static_cast<__rlimit_resource_t>(resource), &both);
}

void redirect(const std::string& path, int descriptor, int flags = O_WRONLY | O_CREAT | O_TRUNC) {
  const int file = ::open(path.c_str(), flags, 0644);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
}

// In the child.
[[noreturn]] void become(const ProcessSpec& spec) {
  // Root may write anywhere; the tests of permissions want a user who may not.
  ::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
  redirect(spec.folder + kOut, STDOUT_FILENO);
  redirect(spec.folder + kErr, STDERR_FILENO);
  if (!spec.input.empty()) redirect(spec.input, STDIN_FILENO, O_RDONLY);
  if (::chdir(spec.folder.c_str()) != 0) ::_exit(126);
  limit(RLIMIT_FSIZE, spec.largest_file_bytes);
  limit(RLIMIT_AS, spec.memory_bytes);
  limit(RLIMIT_DATA, spec.data_bytes);
  for (const auto& [name, value] : spec.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : spec.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  ::_exit(127);
}

}  // namespace

std::string to_text(const ProcessResult& outcome) {
  return fmt::format("exit code {}, signal {}\n--- stdout\n{}\n--- stderr\n{}", outcome.exit_code,
                     outcome.signal, outcome.out, outcome.err);
}

Process::Process(const ProcessSpec& spec) : folder_(spec.folder), pid_(::fork()) {
  if (pid_ < 0) throw SystemError(spec.words[0], "start", errno);
  if (pid_ == 0) become(spec);
}

Process::~Process() {
  if (has_ended()) return;
  send(SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Process::send(int signal) const {
  if (!has_ended_ && pid_ > 0) ::kill(pid_, signal);
}

bool Process::has_ended() {
  if (!has_ended_) has_ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return has_ended_;
}

ProcessResult Process::wait(double seconds) {
  const Stopwatch watch;
  while (!has_ended()) {
    if (watch.seconds() > seconds)
      throw std::runtime_error(fmt::format("still running after {} s: {}", seconds,
                                           read_text(folder_ + kOut) + read_text(folder_ + kErr)));
    ::usleep(1000);
  }
  ProcessResult outcome{.out = read_text(folder_ + kOut), .err = read_text(folder_ + kErr)};
  if (WIFEXITED(status_)) outcome.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) outcome.signal = WTERMSIG(status_);
  return outcome;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace laconic
