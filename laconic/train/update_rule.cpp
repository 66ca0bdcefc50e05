#include "laconic/train/update_rule.hpp"

#include "laconic/train/rule.hpp"

namespace laconic {

AdamW adamw_of(const OptimiserSection& o) {
  return {.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay};
}

std::unique_ptr<UpdateRule> make_update_rule(const RunConfig& config, const Gpt& gpt, World& world,
                                             std::optional<int> automatic) {
  if (world.is_alone()) return make_alone_rule(config, gpt);
  const RuleRequest request{config, gpt, world, encoded_ranks(config, automatic)};
  if (config.local.steps > 0) return make_local_rule(request);
  if (config.dp_gradient.method == GradientMethod::compressed_adam)
    return make_compressed_adam_rule(request);
  return make_summed_rule(request);
}

}  // namespace laconic
