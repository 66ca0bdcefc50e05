#include "laconic/policy/pipeline_plan.hpp"

#include "laconic/schedule/lower.hpp"

namespace laconic {

PipelinePlan plan_for_one(const ModelSpec& spec, int microbatches) {
  return {.schedule = lowered(one_forward_one_backward({1, 1, microbatches})),
          .stages = {{0, block_count(spec)}},
          .encoded = {},
          .activation = {},
          .gradient = {},
          .encodes_activation = {},
          .encodes_gradient = {}};
}

LinkSpec link_at(const PipelinePlan& plan, Traffic traffic, int edge) {
  const bool is_activation = traffic == Traffic::pp_activation;
  const std::vector<bool>& encodes =
      is_activation ? plan.encodes_activation : plan.encodes_gradient;
  const LinkSpec& link = is_activation ? plan.activation : plan.gradient;
  const bool is_encoded = encodes.empty() || encodes[static_cast<std::size_t>(edge)];
  return is_encoded ? link : without_codec(link);
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
