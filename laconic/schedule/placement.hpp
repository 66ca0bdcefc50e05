// schedule/placement.hpp — which rank holds which stage of a pipeline.
//
// A placement is data of its schedule: nobody computes the rank of a stage from
// its number. Stages that follow each other may lie on one rank; then the edge
// between them needs no message.
#pragma once

#include <string>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

using Placement = std::vector<int>;  // by stage: its rank

// 0 1 ... p-1 0 1 ... p-1: stage s on rank s % ranks. Empty when a number is below 1.
Placement round_robin(int ranks, int stages);

// 0 1 ... p-1 p-1 ... 1 0: two stages for each rank; the first and the last stage lie on rank 0.
// Empty when `ranks` is below 1.
Placement v_shape(int ranks);

// Every reason why these are not the ranks of so many stages: a number of entries, an entry that is
// no rank, a rank without a stage.
Problems check(const Placement& placement, int ranks, int stages);

std::string to_text(const Placement& placement);  // "0 1 1 0"

}  // namespace laconic
