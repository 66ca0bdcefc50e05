// cli/config_file.hpp — a configuration as words name it.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct ConfigFile {
  std::string path;
  std::vector<std::string> sets;  // "section.key=value"
};

}  // namespace laconic
