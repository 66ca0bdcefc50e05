#include "laconic/lab/blocked_signals.hpp"

#include <pthread.h>

namespace laconic {

namespace {
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
}

BlockedSignals::BlockedSignals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : kSignals) sigaddset(&blocked, signal);
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

}  // namespace laconic
