// study/run_files.hpp — what a trial has left behind, as an outcome.
//
// Pure: texts in, values out. The log of a run is worth more than its exit code: a trial whose log
// has not as many steps as were asked for has failed, whatever it said at its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/study/trial.hpp"

namespace laconic {

// All as texts; empty where the program makes none.
struct RunTexts {
  std::string log;      // log.jsonl of laconic
  std::string summary;  // its --json
  std::string lab;      // --json of `lab run`
  std::string output;   // what rank 0 printed, and the others behind their numbers
};

// What `log.jsonl` holds of a run: its steps, and lines of their own for evaluations and notes.
struct RunLog {
  std::vector<StepRow> steps;
  std::vector<ValidationRow> validations;
  std::vector<std::string> notes;  // each once
  double tokens_per_step = 0;      // 0: no step is there
};
// `path` is only for messages. Throws FileError.
RunLog read_log(const std::string& text, const std::string& path);

// Adds steps, traffic and counters to an outcome that has its trial. Throws FileError when the
// texts are damaged, std::runtime_error when steps are missing.
void read_run(const RunTexts& texts, Outcome& outcome);

// Why a run that ended with `exit_code` failed: the last line of its errors that neither tells how
// ranks ended nor comes from a rank that only lost another.
std::string failure_reason(int exit_code, std::string_view errors);

}  // namespace laconic
