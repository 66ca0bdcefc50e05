// policy/pipeline_plan.hpp — what all ranks of a pipeline share: who computes what when, and how
// messages travel. A value; runtime/pipeline.hpp walks it.
#pragma once

#include <vector>

#include "laconic/architecture/grid_place.hpp"
#include "laconic/architecture/model_spec.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/schedule/schedule.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

// The same on all ranks of a pipeline.
struct PipelinePlan {
  Schedule schedule;               // lowered
  std::vector<BlockRange> stages;  // by stage
  GradientSends encoded;           // gradients that do not travel raw; empty: all are encoded
  LinkSpec activation;             // of edges that are encoded; names get the edge's number
  LinkSpec gradient;
  std::vector<bool> encodes_activation, encodes_gradient;  // by edge; empty: all
};
// One rank, one stage: F0 B0 F1 B1 ...
PipelinePlan plan_for_one(const ModelSpec& spec, int microbatches);

// What messages of a class undergo on an edge: where it is not encoded they are raw, and nothing is
// remembered of them.
LinkSpec link_at(const PipelinePlan& plan, Traffic traffic, int edge);

// The rank of the pipeline that holds each block.
std::vector<int> ranks_of_blocks(const PipelinePlan& plan);
// Blocks that a rank holds.
HeldBlocks held_blocks(const PipelinePlan& plan, int rank);

}  // namespace laconic
