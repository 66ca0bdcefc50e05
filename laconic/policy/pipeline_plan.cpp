#include "laconic/policy/pipeline_plan.hpp"

#include "laconic/schedule/lower.hpp"

namespace laconic {

PipelinePlan plan_for_one(const ModelSpec& spec, int microbatches) {
  return {.schedule = lowered(one_forward_one_backward({1, 1, microbatches})),
          .stages = {{0, block_count(spec)}},
          .encoded = {},
          .activation = {},
          .gradient = {}};
}

std::vector<int> ranks_of_blocks(const PipelinePlan& plan) {
  return ranks_of_blocks(plan.schedule, plan.stages);
}

HeldBlocks held_blocks(const PipelinePlan& plan, int rank) {
  HeldBlocks held;
  for (const int holder : ranks_of_blocks(plan)) held.push_back(holder == rank);
  return held;
}

}  // namespace laconic
