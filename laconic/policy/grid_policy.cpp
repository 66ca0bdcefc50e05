#include "laconic/policy/grid_policy.hpp"

#include "laconic/config/layer_choice.hpp"

namespace laconic {

namespace {

GridClassPolicy class_of(const std::string& codec, const std::string& layers, bool has_feedback,
                         const ModelSpec& spec) {
  const std::vector<std::size_t> blocks = layer_blocks(spec);
  const std::vector<bool> chosen = chosen_layers(layers, static_cast<std::int64_t>(blocks.size()));
  GridClassPolicy policy{.codec = parse_codec(codec),
                         .has_feedback = has_feedback,
                         .blocks = std::vector<bool>(spec.blocks.size(), false)};
  for (std::size_t i = 0; i < blocks.size(); ++i) policy.blocks[blocks[i]] = chosen[i];
  return policy;
}

}  // namespace

GridPolicy grid_policy_of(const RunConfig& config, const ModelSpec& spec) {
  const TpWeightSection& weight = config.tp_weight;
  GridPolicy policy = {
      .activation = class_of(config.tp_activation.codec, config.tp_activation.layers, false, spec),
      .gradient = class_of(config.tp_gradient.codec, config.tp_gradient.layers, false, spec),
      .weight = class_of(weight.codec, weight.layers, false, spec),
      .weight_gradient = class_of(weight.gradient, weight.layers, weight.feedback, spec)};
  policy.activation.is_masked = config.tp_activation.masked;
  return policy;
}

bool is_lossy(const GridPolicy& policy) {
  for (const GridClassPolicy* one :
       {&policy.activation, &policy.gradient, &policy.weight, &policy.weight_gradient})
    if (is_lossy(one->codec)) return true;
  return false;
}

}  // namespace laconic
