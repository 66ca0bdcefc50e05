#include "laconic/cli/early_signals.hpp"

#include <unistd.h>

#include <string_view>

namespace laconic {

namespace {

constexpr int kEarlySignals[] = {SIGINT, SIGTERM, SIGHUP};

// In a signal handler: no formatting, no destructors.
[[noreturn]] void end_at_once(int number) {
  constexpr std::string_view text =
      "laconic: stopped by a signal while ranks connect; nothing was trained\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) ::_exit(128 + number);
  ::_exit(128 + number);
}

}  // namespace

EarlySignals::EarlySignals(const std::function<int()>& stop_signal) {
  struct sigaction action {};
  action.sa_handler = end_at_once;
  for (int i = 0; i < 3; ++i) {
    ::sigaction(kEarlySignals[i], &action, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) ::sigaction(kEarlySignals[i], &before_[i], nullptr);
  }
  if (const int signal = stop_signal ? stop_signal() : 0; signal != 0) end_at_once(signal);
}

EarlySignals::~EarlySignals() {
  for (int i = 0; i < 3; ++i) ::sigaction(kEarlySignals[i], &before_[i], nullptr);
}

}  // namespace laconic
