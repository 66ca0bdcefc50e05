#include "laconic/lab/blocked_signals.hpp"

#include <pthread.h>

namespace laconic {

namespace {
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

sigset_t all_three() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

BlockedSignals::BlockedSignals() {
  const sigset_t blocked = all_three();
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

BlockedSignals::~BlockedSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool BlockedSignals::is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  for (const int signal : kSignals)
    if (sigismember(&pending, signal) == 1) return true;
  return false;
}

int BlockedSignals::take() {
  const sigset_t waited = all_three();
  const timespec at_once{};
  const int signal = ::sigtimedwait(&waited, nullptr, &at_once);
  return signal > 0 ? signal : 0;
}

}  // namespace laconic
