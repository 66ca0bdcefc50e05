// cli/simulate_command.hpp — `laconic simulate`: a step of a run on described hosts, without a run.
//
// Needs no libtorch, so it all happens in the front, which can read configurations but no folders
// of models.
#pragma once

#include <cstdint>
#include <string>

#include "laconic/cli/config_file.hpp"
#include "laconic/simulate/scenario.hpp"

namespace laconic {

struct SimulateCommand {
  ConfigFile config;
  std::string hosts;
  bool first_epoch = false;
  bool full = false;        // every rank by itself
  std::uint64_t lanes = 0;  // at most so many of a sum; 0: as a run has them
  double rows_read = 0;
  ScenarioWords scenario;
  bool gantt = false;
  int columns = 0;  // 0: the terminal's
  std::string svg;
  std::string trace;  // a folder
  std::string json;
};

// The exit code. Throws ConfigError with every problem, FileError or SystemError.
int run_simulate(const SimulateCommand& command, const std::string& presets_folder);

}  // namespace laconic
