// simulate/step_program.hpp — the computing threads of all ranks, step by step.
//
// Follows train/step.cpp and runtime/pipeline_walk.cpp:
//
//   forward     block by block; with train.update = "block" each waits for its sums first, and is
//               updated
//   backward    block by block; in a stage's last one a block that is complete is posted. Sums that
//               are late are those of the step before, posted when this one begins
//   send, recv  of a seam: encodes, sends, waits, decodes
//   reduce      waits for sums, tells all ranks of the step, waits for what they tell
//   update
//
// With local updates (update/local_rule.hpp) sums are those of a replica's own stages, ranks tell
// those of their replica, and changes are summed after the last update of a round. Rows of
// embedding tables leave when a step begins, and their gradients before those of their block.
#pragma once

#include <vector>

#include "laconic/policy/local_round.hpp"
#include "laconic/simulate/program_builder.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

void add_steps(ProgramBuilder& builder, const SimulationRequest& request,
               const std::vector<LocalStep>& steps);

}  // namespace laconic
