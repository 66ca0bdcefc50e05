// simulate/run_picture.hpp — a simulated step as schedules are drawn, and what it amounts to.
#pragma once

#include "laconic/schedule/estimate.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

// The last step of the pipeline of the first replica and the first rank of its grid, from its
// begin: what gantt_text() and gantt_svg() draw. What a rank waits for within a box is part of it.
Timing timing_of(const RunSimulation& simulation, const Schedule& lowered, const Mesh& mesh);

// Of a step, the mean over ranks.
RankSpent mean_spent(const RunSimulation& simulation);

}  // namespace laconic
