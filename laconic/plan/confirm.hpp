// plan/confirm.hpp — a plan's step by simulation (simulate/run_simulation.hpp), which sees what
// formulas leave out: queues, urgency, and cores that ranks share from moment to moment.
#pragma once

#include "laconic/plan/answer.hpp"

namespace laconic {

// A plan whose program has too many messages is simulated coarsely: ranks that are alike as one,
// and sums in few lanes. If it has too many even then, or the simulator cannot have it for other
// reasons, there is a reason instead of a time. What is too much is counted in messages, not in
// seconds, so that any machine gives the same answer.
PlanConfirmation simulated_plan(const RunConfig& config, const Hosts& hosts,
                                const std::vector<int>& seating);

}  // namespace laconic
