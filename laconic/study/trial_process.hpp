// study/trial_process.hpp — the command of one trial, from its start to its end; several may run.
//
// What it prints goes to a file that can be followed meanwhile. It is asked to end when a signal
// comes or its time is up, and made to half a second later: a run that is asked once would save a
// checkpoint first, over the slow links.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "laconic/machine/environment.hpp"

namespace laconic {

struct ProcessEnd {
  int exit_code = 0;     // 128 + n after signal n
  int signal = 0;        // that came to us, and ended it; 0: none
  bool is_late = false;  // its time was up
  double seconds = 0;
  std::string output, errors;
};

// Requires: no other thread runs, BlockedSignals lives.
class TrialProcess {
 public:
  // Throws SystemError when it cannot be started or `log` not be written.
  TrialProcess(const std::vector<std::string>& words, const Environment& environment,
               const std::string& log, double deadline_seconds);
  ~TrialProcess();
  TrialProcess(TrialProcess&&) noexcept;

  // Reads what it has printed, and presses it to end when it must; true once it has ended.
  bool has_ended();
  void interrupt(int signal);  // that came to us
  ProcessEnd end();            // Requires: has_ended(). Once.
  void wait() const;           // until it prints something, or a glance later

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace laconic
