// lab/blocked_signals.hpp — a stretch of work that Ctrl-C does not cut.
//
// While one lives, SIGINT, SIGTERM and SIGHUP wait. The work looks now and
// then whether one is pending and ends in order; what nobody has taken acts
// when the object goes, as it always would have.
#pragma once

#include <csignal>

namespace laconic {

class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  static bool is_pending();  // one of the three
  // One that is pending, which then has been answered; 0: none is.
  static int take();

 private:
  sigset_t before_;
};

}  // namespace laconic
