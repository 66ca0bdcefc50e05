// cli/compare_command.hpp — `laconic compare`: runs side by side, from what they have left on disk.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct CompareCommand {
  std::vector<std::string> runs;  // folders; the first is what the others are compared with
  std::string by = "seconds";     // x axis of the picture
  int columns = 0;                // of the picture in the terminal; 0: the terminal's
  std::string svg;
  std::string json;
};

// The exit code. Throws ConfigError with every problem, FileError or SystemError.
int run_compare(const CompareCommand& command);

}  // namespace laconic
