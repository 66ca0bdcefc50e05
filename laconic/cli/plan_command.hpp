// cli/plan_command.hpp — `laconic plan`: which mesh, schedule and messages for which machines.
//
// Needs no libtorch, so it all happens in the front. Everything that it prints is predicted.
#pragma once

#include <cstdint>
#include <string>

#include "laconic/cli/config_file.hpp"

namespace laconic {

struct PlanCommand {
  ConfigFile config;
  std::string hosts;                 // a file, or the name of a preset
  std::string loss_budget = "0.5%";  // that messages may cost, by what is known
  std::int64_t batch = 0;            // 0: the configuration's
  int top = 10;
  bool unproven = false;
  bool trained = false;   // weights are given: losses are those of models that are trained on
  bool is_quick = false;  // without the answers to "what if"
  std::string losses;     // a file; empty: the one that comes with the program
  std::string output;     // a configuration
  std::string html;
  std::string json;
};

// The exit code. Throws ConfigError with every problem, FileError or SystemError.
int run_plan(const PlanCommand& command, const std::string& presets_folder);

}  // namespace laconic
