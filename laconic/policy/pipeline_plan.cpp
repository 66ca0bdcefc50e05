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
  std::vector<int> ranks;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t b = plan.stages[s].begin; b < plan.stages[s].end; ++b)
      ranks.push_back(rank_of_stage(plan.schedule, static_cast<int>(s)));
  return ranks;
}

HeldBlocks held_blocks(const PipelinePlan& plan, int rank) {
  HeldBlocks held;
  for (const int holder : ranks_of_blocks(plan)) held.push_back(holder == rank);
  return held;
}

}  // namespace laconic
