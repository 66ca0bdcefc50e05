// architecture/grid_memory.hpp — what a rank of a tensor grid holds, in elements: counted, not
// measured.
//
// Of ranks that have different parts the first has most, and counts. A grid of one rank is one
// process. Pure and std only.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

double elements_on_a_rank(const GridPlan& plan, const ParameterSpec& parameter);

// Of what crosses from block to block: which part a rank has, and how much of one sample.
double share_of_seam(const GridPlan& plan);
double seam_on_a_rank(const GridPlan& plan, const std::vector<SeamTensor>& seam);
// Of what forward of a block keeps for one sample (BlockSpec::kept), or with `recomputes` of its
// output alone. The last block is never recomputed.
double kept_on_a_rank(const GridPlan& plan, const BlockSpec& block, bool recomputes);
// Of a block in backward besides: gradients of activations, and what was recomputed.
double at_work_on_a_rank(const GridPlan& plan, const BlockSpec& block, bool recomputes);
// What the largest map of each block needs while its gradients are computed, and forward does not
// keep: its input, the gradient of its output, its weight and the gradient of that, where they are
// gathered. With `prefetches` the weight of the next map and the gradient of the last one, too: as
// much again at most.
std::vector<double> gathered_on_a_rank(const ModelSpec& spec, const GridPlan& plan,
                                       std::int64_t samples, bool prefetches);

// What forward keeps besides for a microbatch with GridPlan::keep, by block: the inputs and weights
// that it has gathered. Of blocks that are recomputed it is there while they are in backward alone.
struct KeptGathered {
  std::vector<double> kept, at_work;
};
KeptGathered kept_gathered_on_a_rank(const ModelSpec& spec, const GridPlan& plan,
                                     std::int64_t samples, bool recomputes);

// All of a model, where there is no pipeline.
struct GridHolding {
  double parameters = 0;
  double gradients = 0;    // each block has its own of a parameter that several use
  double activations = 0;  // kept, and those of the block at work
  double gathered = 0;     // for one map
};
struct GridHeld {
  std::int64_t samples = 1;  // of a microbatch
  std::int64_t microbatches = 1;
  bool recomputes = false;
  bool prefetches = true;
};
GridHolding grid_holding(const ModelSpec& spec, const GridPlan& plan, const GridHeld& held);

}  // namespace laconic
