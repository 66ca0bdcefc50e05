// bench/simgrid/program_case.hpp — the programs that two simulators are asked about.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/simulate/run_program.hpp"

namespace laconic {

struct ProgramCase {
  std::string name;
  bool is_quick = false;  // little enough for a test
  std::function<RunProgram()> program;
};

// Collectives, pipelines and meshes of up to 256 hosts: on cards of 100 Mbit/s, at two sites that
// share uplinks, on links of one direction at a time, on cores that ranks share.
std::vector<ProgramCase> program_cases();

}  // namespace laconic
