// cli/layout_estimate.hpp — predicted times, bytes and memory of grids, as text and JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "laconic/policy/grid_estimate.hpp"

namespace laconic {

// What was asked for, in words: "100mbit, latency 1 ms, 30 GFLOP/s on each rank".
std::string to_text(const GridMachine& machine);

std::string describe(const GridEstimate& estimate, const GridMachine& machine,
                     std::int64_t microbatches);
std::string describe(const std::vector<GridCandidate>& candidates, const GridMachine& machine);

nlohmann::ordered_json to_json(const GridMachine& machine);
nlohmann::ordered_json to_json(const GridEstimate& estimate);
nlohmann::ordered_json to_json(const std::vector<GridCandidate>& candidates);

}  // namespace laconic
