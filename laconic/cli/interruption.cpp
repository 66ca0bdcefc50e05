#include "laconic/cli/interruption.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "laconic/file/descriptor.hpp"
#include "laconic/report/console.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kNotBegun = -1;

volatile std::sig_atomic_t caught_signal = 0;
std::atomic<std::int64_t> current_step = kNotBegun;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // a signal handler reads it
bool speaks = false;
bool has_bar = false;  // a progress bar may stand where we write
std::int64_t round_steps = 1;

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

void say_what_follows(const char* reason) {
  HandlerLine line;
  if (has_bar) line << "\r\x1b[K";
  line << "laconic: " << reason << ": ";
  const std::int64_t step = current_step.load();
  if (step == kNotBegun)
    line << "finishing the start and one step, then saving";
  else if (step == 0)
    line << "all steps are done, saving";
  else
    line << "finishing step " << (step + round_steps - 1) / round_steps * round_steps
         << ", then saving";
  line << "; again to end at once\n";
  line.write();
}

void catch_signal(int number) {
  const int error_number = errno;
  caught_signal = number;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  if (speaks) say_what_follows(name_of_signal(number));
  errno = error_number;
}

}  // namespace

void catch_interruptions(const InterruptionOptions& options) {
  speaks = options.speaks;
  round_steps = options.round_steps;
  has_bar = is_live_terminal(stderr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, catch_signal);
  std::signal(SIGTERM, catch_signal);
  // A terminal that is closed; under nohup it does not matter.
  if (std::signal(SIGHUP, catch_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

int pending_interruption() {
  if (caught_signal != 0 || !has_lost_reader(STDOUT_FILENO)) return caught_signal;
  caught_signal = SIGPIPE;
  if (speaks) say_what_follows("nobody reads standard output any more");
  // Whatever is still said there goes nowhere, and is no error.
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::close(nowhere);
  }
  std::clearerr(stdout);
  return caught_signal;
}

void note_step(std::int64_t step) {
  current_step = step;
}

}  // namespace laconic
