// study/trial.hpp — one measured run, as a value: what is run, and what came of it.
//
// A study is a list of trials, made by a pure function. The runner runs those that
// have no outcome yet, one after the other, and keeps each outcome in a file of its
// own: an interrupted study goes on where it was. Pages are pure functions of
// outcomes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace laconic {

enum class Program : std::uint8_t {
  laconic,  // `laconic train`
  ddp,      // PyTorch's DistributedDataParallel, by bench/peers/torch_ddp.py
};

// Steps that count, of one kind: what comes round once in a long run must not count as often as it
// does in a short one.
struct CountedSteps {
  std::int64_t steps = 1;
  double share = 1;  // of the steps of a long run that are of this kind, in any unit; 0: of none
  bool operator==(const CountedSteps&) const = default;
};

struct Trial {
  std::string part;    // of the report: "bandwidth", "end-to-end", ...
  std::string method;  // what is compared: "fp32", "ac-sgd, 4 and 6 bits", "DDP, fp16 hook"
  std::string rate;    // of each host's link: "100mbit", "unshaped"; "none": not in a lab at all
  int round = 1;       // rounds alternate over methods, so that a slow minute hits all alike
  Program program = Program::laconic;
  int hosts = 4;       // one rank on each
  std::string model;   // which of the study's models and datasets (study/work.hpp)
  std::string preset;  // laconic: what the configuration extends; may be empty
  std::map<std::string, std::string> set;  // laconic: keys; ddp: options without their dashes
  std::int64_t warmup = 1;                 // steps before those that count
  std::int64_t steps = 3;                  // that count
  std::vector<CountedSteps> kinds;         // of these, in their order; empty: all are alike
  std::map<std::string, std::string> environment = {};  // laconic: variables
  bool operator==(const Trial&) const = default;
};
// "bandwidth/100mbit/ac-sgd-4-and-6-bits/1": names its file; unique in a study.
std::string id_of(const Trial& trial);

struct StepRow {
  std::int64_t step = 0;  // from 1
  double seconds = 0;
  double loss = 0;
  double wire_bytes = 0;       // sent by rank 0, by its own meter; ddp: not known, 0
  double exposed_seconds = 0;  // rank 0 waited for the network; ddp: not known, 0
  bool operator==(const StepRow&) const = default;
};

// What an evaluation said, after that many steps.
struct ValidationRow {
  std::int64_t step = 0;
  double loss = 0;
  bool operator==(const ValidationRow&) const = default;
};

// What one class of messages sent in the whole run.
struct ClassTotal {
  std::string traffic;  // "pp.activation"
  double messages = 0;
  double raw_bytes = 0;                                               // all ranks
  double wire_bytes = 0;                                              // all ranks
  double active_seconds = 0, exposed_seconds = 0, codec_seconds = 0;  // mean over ranks
  double decode_seconds = 0;  // of codec_seconds; 0 in outcomes of programs that did not tell
  bool operator==(const ClassTotal&) const = default;
};

struct Outcome {
  Trial trial;
  std::string failure;                     // why there are no numbers; empty: it went well
  std::string commit;                      // of the program
  std::string machine;                     // one line
  std::string began;                       // "2026-11-15T18:00:00Z"
  double seconds = 0;                      // of the whole process
  std::vector<std::string> command;        // as a user would type it
  std::vector<StepRow> steps;              // all, warm-up included
  std::vector<ValidationRow> validations;  // laconic: the curve, the last step included if asked
  std::vector<ClassTotal> traffic;         // laconic
  double interface_sent_bytes = 0;  // all hosts' eth0, whole run, by the kernel; 0: not in a lab
  double interface_packets = 0;
  double counted_sent_bytes = 0;  // ddp: of a step that counts, all hosts' eth0; 0: not known
  std::string versions;           // ddp: "PyTorch 1.13.1, Python 3.11.2"
  std::vector<double> computing_seconds;  // by rank: forward and backward of one microbatch
  double samples = 0;                     // in the dataset
  double validation_loss = 0;             // at the end; 0: it was not evaluated
  std::map<std::string, double> metrics;  // of the task, at the end: "accuracy"
  std::string model_about;                // "8 layers of width 256, ..."; empty: not known
  std::vector<std::string> notes;         // what the run said of bypassing and alarms
  bool operator==(const Outcome&) const = default;
};
std::string to_json(const Outcome& outcome);
Outcome parse_outcome(const std::string& json);  // throws FileError

// It could not be run here at all: its failure begins with "skipped". It has no file.
bool was_skipped(const Outcome& outcome);

// What a step that counts has of something: the median, or, where there are several kinds of steps,
// the mean over a long run. Nothing where no step counts.
std::optional<double> of_a_step(const Outcome& outcome, double StepRow::*what);

}  // namespace laconic
