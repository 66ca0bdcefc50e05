#include "laconic/study/trial_process.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/file/append_file.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/launch/child.hpp"

namespace laconic {

namespace {

constexpr int kGlance = 50;             // milliseconds between looks at signals and clocks
constexpr double kSecondsToUrge = 0.5;  // launch/local.hpp takes two that come at once for one
constexpr double kSecondsToKill = 20;   // a lab of many hosts has to be removed in these
constexpr std::size_t kMostText = 4 << 20;

}  // namespace

class TrialProcess::Watch {
 public:
  Watch(const ChildSpec& spec, const std::string& log, double deadline_seconds)
      : child_(spec), log_(log), deadline_seconds_(deadline_seconds) {}

  bool has_ended() {
    if (is_over_) return true;
    const std::optional<int> status = child_.take_status();
    read_all();
    if (!status) {
      press();
      return false;
    }
    end_.exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
    end_.seconds = clock_.seconds();
    return is_over_ = true;
  }
  void interrupt(int signal) {
    if (end_.signal == 0) end_.signal = signal;
  }
  ProcessEnd end() { return std::move(end_); }

  void wait() const {
    pollfd ends[2] = {{child_.output(), POLLIN, 0}, {child_.error(), POLLIN, 0}};
    ::poll(ends, 2, kGlance);
  }

 private:
  void read_all() {
    if (!read(child_.output(), end_.output)) child_.close_output();
    if (!read(child_.error(), end_.errors)) child_.close_error();
  }

  // False when no more will come.
  bool read(int from, std::string& text) {
    if (from < 0) return true;
    char bytes[16 << 10];
    ssize_t count = 0;
    while ((count = ::read(from, bytes, sizeof bytes)) > 0) {
      const std::string_view piece(bytes, static_cast<std::size_t>(count));
      log_.write(piece);
      if (text.size() < kMostText) text += piece;
    }
    return count < 0 && (errno == EAGAIN || errno == EINTR);
  }

  // One step harder, when it is time.
  void press() {
    if (end_.signal == 0 && clock_.seconds() > deadline_seconds_) end_.is_late = true;
    if (end_.signal == 0 && !end_.is_late) return;
    const double now = clock_.seconds();
    if (pressed_ == 0) pressed_at_ = now;
    constexpr double kWhen[] = {0, kSecondsToUrge, kSecondsToKill};
    if (pressed_ < 3 && now >= pressed_at_ + kWhen[pressed_])
      child_.send(pressed_++ < 2 ? SIGTERM : SIGKILL);
  }

  Child child_;
  AppendFile log_;
  double deadline_seconds_;
  Stopwatch clock_;
  ProcessEnd end_;
  bool is_over_ = false;
  int pressed_ = 0;
  double pressed_at_ = 0;
};

TrialProcess::TrialProcess(const std::vector<std::string>& words, const Environment& environment,
                           const std::string& log, double deadline_seconds) {
  const std::string program = find_tool(words.at(0));
  if (program.empty()) throw SystemError(words[0], "run", ENOENT);
  watch_ = std::make_unique<Watch>(ChildSpec{program, words, environment}, log, deadline_seconds);
}
TrialProcess::~TrialProcess() = default;
TrialProcess::TrialProcess(TrialProcess&&) noexcept = default;

bool TrialProcess::has_ended() {
  return watch_->has_ended();
}
void TrialProcess::interrupt(int signal) {
  watch_->interrupt(signal);
}
ProcessEnd TrialProcess::end() {
  return watch_->end();
}
void TrialProcess::wait() const {
  watch_->wait();
}

}  // namespace laconic
