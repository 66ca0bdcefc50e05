// plan/confirm.hpp — a plan's step by simulation (simulate/run_simulation.hpp), which sees what
// formulas leave out: queues, urgency, and cores that ranks share from moment to moment.
#pragma once

#include "laconic/plan/answer.hpp"

namespace laconic {

// Nothing where the simulator says that it cannot.
std::optional<double> simulated_seconds(const RunConfig& config, const Hosts& hosts,
                                        const std::vector<int>& seating);

}  // namespace laconic
