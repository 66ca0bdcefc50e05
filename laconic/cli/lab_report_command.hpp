// cli/lab_report_command.hpp — `laconic lab report`: `laconic study` with the file of a size.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct LabReportCommand {
  std::string size = "short";
  std::string out;                 // empty: docs/results/DATE or DATE-short
  std::vector<std::string> parts;  // empty: all
  std::vector<std::string> rates;  // empty: all
  std::string method;              // part of its name; empty: all
  double deadline_seconds = 1800;  // of one trial
  bool list = false;
  bool commands = false;  // print them, and run nothing
  bool retry = false;
  bool pages_only = false;
};

// The exit code. Throws ConfigError with every problem, SystemError or std::runtime_error.
int run_lab(const LabReportCommand& command);

}  // namespace laconic
