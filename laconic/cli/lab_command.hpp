// cli/lab_command.hpp — `laconic lab ...`: a slow network on one machine.
//
// All of it happens in the front. Every verb but `status` first removes what
// killed runs have left behind.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace laconic {

struct LabUpCommand {
  std::string name = "lab";
  int hosts = 4;
  std::string rate = "100mbit";
  double queue_ms = 40;
};

struct LabDownCommand {
  std::string name = "lab";
};

struct LabRateCommand {
  std::string name = "lab";
  std::string rate;
  double queue_ms = 40;
};

struct LabStatusCommand {
  std::string name;  // empty: all
  std::string json;  // "-": to standard output, instead of the text
};

struct LabRunCommand {
  std::string name = "lab";
  bool ephemeral = false;  // a lab of its own even when `name` is up
  std::optional<int> hosts;
  std::optional<std::string> rate;
  int ranks_per_host = 1;
  int threads = 0;  // of each rank; 0: the machine's, divided
  int port = 29500;
  double grace_seconds = 10;
  std::string json;  // gets what the interfaces counted during the run
  std::vector<std::string> words;
};

// Exit codes. Throw ConfigError with every problem, SystemError or std::runtime_error.
int run_lab(const LabUpCommand& command);
int run_lab(const LabDownCommand& command);
int run_lab(const LabRateCommand& command);
int run_lab(const LabStatusCommand& command);
int run_lab(const LabRunCommand& command);

}  // namespace laconic
