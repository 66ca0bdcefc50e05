// cli/simulate_report.hpp — what `laconic simulate` says of a step, as text, JSON and traces.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "laconic/simulate/run_simulation.hpp"
#include "laconic/simulate/scenario.hpp"

namespace laconic {

struct SimulatedRun {
  std::string model;  // in words
  const RunConfig& config;
  const Hosts& hosts;
  RunSimulation simulation;
  std::vector<MemoryEstimate> memory;  // by place in the pipeline
  std::int64_t tokens = 0;             // of a step
  std::uint64_t lanes = 0;             // at most so many of a sum; 0: as a run has them
  std::string rows = {};               // how many are read of which table: lines for people
};

std::string describe(const SimulatedRun& run);
std::string describe(const LostRank& lost, const LossCost& cost, const SimulatedRun& run);
nlohmann::ordered_json to_json(const SimulatedRun& run);
// A file for each simulated rank. Throws SystemError.
void write_traces(const SimulatedRun& run, const std::string& folder);

}  // namespace laconic
