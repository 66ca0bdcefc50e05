// cli/study_command.hpp — `laconic study`: the trials of a file, and the page that they make.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct StudyCommand {
  std::string file;
  std::string out;                 // empty: runs/NAME, of the file
  std::vector<std::string> only;   // words of chosen() (study/study_trials.hpp)
  double deadline_seconds = 7200;  // of one trial
  int jobs = 1;
  bool list = false;
  bool commands = false;  // print them, and run nothing
  bool retry = false;
  bool pages_only = false;
};

// The exit code. Throws ConfigError with every problem, SystemError or std::runtime_error.
int run_study_file(const StudyCommand& command);

}  // namespace laconic
