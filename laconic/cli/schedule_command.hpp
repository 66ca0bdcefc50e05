// cli/schedule_command.hpp — `laconic schedule`: schedules of pipelines, and of the fragments of
// Streaming DiLoCo, without a run.
//
// Needs no libtorch, so it all happens in the front. Seconds of forward and
// backward are those of a rank, over all of its chunks: so kinds with different
// numbers of chunks can be compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "laconic/schedule/fragment.hpp"

namespace laconic {

struct ScheduleCommand {
  std::string what;  // a kind, a file, "auto" or "streaming"; empty: 1f1b
  std::optional<int> ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;

  std::vector<double> forward = {1};  // by rank, or one for all; so is backward
  std::vector<double> backward = {2};
  double weight_share = 0.5;  // of backward, for kinds that split it
  double activation = 0;
  std::optional<double> gradient;  // as long as an activation
  double ratio = 8;                // how many times shorter an encoded gradient is
  std::optional<double> bytes;     // of a message, with `rate` instead of seconds
  std::string rate;
  double latency = 0;
  double reduction = 0;  // of a rank
  double step = 0;
  std::string wiring = "pairs";
  bool half_duplex = false;
  bool paired = false;
  std::string when = "never";

  int finer = 4;                    // auto: parts that a microbatch may be cut in
  double overhead = 0;              // auto: seconds of forward and of backward that do not shrink
  std::optional<double> most_live;  // auto: live activations there is room for

  FragmentSpec fragments{.layers = 3, .steps = 30};  // streaming; its blocks are those of `layers`
  int layers = 12;                                   // streaming: of the model

  bool compare = false;
  bool lowered = false;
  bool text = false;
  bool gantt = false;
  bool messages = false;
  int columns = 0;  // 0: the terminal's
  std::string svg;
  std::string json;
};

// The exit code. Throws ConfigError with every problem, FileError or SystemError.
int run_schedule(const ScheduleCommand& command);

}  // namespace laconic
