// cli/early_signals.hpp — while a rank still looks for the others, the first signal ends it.
//
// In training the first signal asks a run to save and end. Before that there is nothing to save,
// and whoever waits for other ranks, perhaps in a library, does not look whether somebody has
// asked.
#pragma once

#include <csignal>
#include <functional>

namespace laconic {

// From its making until it goes SIGINT, SIGTERM and SIGHUP end this process at once, with exit code
// 128 + signal; what was there before comes back then. An ignored signal stays so.
class EarlySignals {
 public:
  // `stop_signal` says which signal has come already, 0: none; it ends the process, too.
  explicit EarlySignals(const std::function<int()>& stop_signal);
  ~EarlySignals();
  EarlySignals(const EarlySignals&) = delete;
  EarlySignals& operator=(const EarlySignals&) = delete;

 private:
  struct sigaction before_[3]{};
};

}  // namespace laconic
