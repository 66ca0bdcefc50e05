// cli/layout_command.hpp — `laconic layout`: a grid of tensor-parallel ranks without a run.
//
// Prints who holds which part of each kind of parameter and of activations, what
// moves when, and how much of it a rank receives; with a machine to do it, also how long a step
// would take; or compares all grids of so many ranks. Needs no libtorch, so it all
// happens in the front, which can read configurations but no folders of models.
#pragma once

#include <cstdint>
#include <string>

#include "laconic/cli/config_file.hpp"

namespace laconic {

struct LayoutCommand {
  ConfigFile config;
  std::string tp;          // empty: the configuration's
  std::string method;      // likewise
  std::int64_t batch = 0;  // samples of a microbatch; 0: the configuration's
  int search = 0;          // ranks of the grids to compare; 0: one grid
  std::string rate;        // of links; empty: no prediction
  std::string latency;     // "1ms"
  double gflops = 0;       // of a rank; 0: computing takes no time
  std::string handling;    // a rate; empty: takes no time
  std::string overhead;    // of each message: "50us"
  std::string waking;      // of each collective
  double queue = 0;        // of a switch, in bytes
  std::string loss;        // where it overflows: "50ms"
  double updates = 0;      // millions of parameters in a second
  std::string svg;
  std::string json;
};

// The exit code. Throws ConfigError with every problem, FileError or SystemError.
int run_layout(const LayoutCommand& command, const std::string& presets_folder);

}  // namespace laconic
