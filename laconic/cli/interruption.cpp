#include "laconic/cli/interruption.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "laconic/file/descriptor.hpp"
#include "laconic/report/console.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kNotBegun = 0;

// The step after which a run that is interrupted now will end, and whether it is: one number, so
// that what the handler says is what happens.
struct Progression {
  std::int64_t step = kNotBegun;
  bool is_interrupted = false;
};
std::int64_t packed(const Progression& p) {
  return p.step * 2 + (p.is_interrupted ? 1 : 0);
}
Progression unpacked(std::int64_t number) {
  return {number / 2, number % 2 != 0};
}

std::atomic<std::int64_t> progression = 0;
std::atomic<std::int64_t> current_step = kNotBegun;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // a signal handler uses it
volatile std::sig_atomic_t caught_signal = 0;
InterruptionOptions given;
bool has_bar = false;  // a progress bar may stand where we write

// A line that a signal handler may put together: nothing is allocated.
class HandlerLine {
 public:
  HandlerLine& operator<<(const char* text) {
    while (*text != 0 && size_ < sizeof text_) text_[size_++] = *text++;
    return *this;
  }
  HandlerLine& operator<<(std::int64_t number) {
    char digits[24];
    int count = 0;
    do digits[count++] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0 && size_ < sizeof text_) text_[size_++] = digits[--count];
    return *this;
  }
  void write() const {
    const ssize_t ignored = ::write(STDERR_FILENO, text_, size_);
    static_cast<void>(ignored);
  }

 private:
  char text_[256];
  std::size_t size_ = 0;
};

const char* name_of_signal(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

void say_what_follows(const char* reason, std::int64_t step, const char* hint) {
  HandlerLine line;
  if (has_bar) line << "\r\x1b[K";
  line << "laconic: " << reason << ": ";
  if (step == kNotBegun)
    line << "finishing the start and one step, then saving";
  else if (step > given.steps)
    line << "all steps are done, saving";
  else
    line << "finishing step "
         << (step + given.round_steps - 1) / given.round_steps * given.round_steps
         << ", then saving";
  line << hint << "\n";
  line.write();
}

void catch_signal(int number) {
  const int error_number = errno;
  caught_signal = number;
  const Progression then = unpacked(progression.fetch_or(1));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  if (given.speaks) say_what_follows(name_of_signal(number), then.step, "; again to end at once");
  errno = error_number;
}

// Whatever is still said on standard output goes nowhere, and is no error.
void silence_output() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::close(nowhere);
  }
  std::clearerr(stdout);
}

}  // namespace

void catch_interruptions(const InterruptionOptions& options) {
  given = options;
  has_bar = is_live_terminal(stderr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, catch_signal);
  std::signal(SIGTERM, catch_signal);
  // A terminal that is closed; under nohup it does not matter.
  if (std::signal(SIGHUP, catch_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

int pending_interruption() {
  std::int64_t seen = progression.load();
  if (!unpacked(seen).is_interrupted && has_lost_reader(STDOUT_FILENO)) {
    const Progression then = unpacked(progression.fetch_or(1));
    if (!then.is_interrupted) {
      caught_signal = SIGPIPE;
      if (given.speaks) say_what_follows("nobody reads standard output any more", then.step, "");
    }
    silence_output();
    return caught_signal;
  }
  // Who is interrupted from here on has the next step as well. Ranks that are threads all say so.
  const std::int64_t next = packed({current_step.load() + 1, false});
  if (unpacked(seen).is_interrupted || !progression.compare_exchange_strong(seen, next))
    return caught_signal;
  return 0;
}

void note_step(std::int64_t step) {
  if (step == 0) step = given.steps + 1;
  current_step = step;
  std::int64_t seen = progression.load();
  while (!progression.compare_exchange_weak(
      seen, packed({std::max(step, unpacked(seen).step), unpacked(seen).is_interrupted}))) {
  }
}

}  // namespace laconic
