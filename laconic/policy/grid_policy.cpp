#include "laconic/policy/grid_policy.hpp"

#include "laconic/config/layer_choice.hpp"

namespace laconic {

namespace {

// Blocks that residual branches make: neither embeddings nor the head.
std::vector<std::size_t> layer_blocks(const ModelSpec& spec) {
  std::vector<std::size_t> blocks;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    if (!spec.blocks[b].out.empty() && spec.blocks[b].multiply_adds > 0) blocks.push_back(b);
  return blocks;
}

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
  return {
      .activation = class_of(config.tp_activation.codec, config.tp_activation.layers, false, spec),
      .gradient = class_of(config.tp_gradient.codec, config.tp_gradient.layers, false, spec),
      .weight = class_of(weight.codec, weight.layers, false, spec),
      .weight_gradient = class_of(weight.gradient, weight.layers, weight.feedback, spec)};
}

Problems check_grid_layers(const RunConfig& config, const ModelSpec& spec) {
  const auto layers = static_cast<std::int64_t>(layer_blocks(spec).size());
  Problems problems;
  for (const auto& [key, text] : {std::pair{"tp.activation.layers", config.tp_activation.layers},
                                  {"tp.gradient.layers", config.tp_gradient.layers},
                                  {"tp.weight.layers", config.tp_weight.layers}})
    append(problems, all_at(key, check_layers(text, layers)));
  return problems;
}

bool is_lossy(const GridPolicy& policy) {
  for (const GridClassPolicy* one :
       {&policy.activation, &policy.gradient, &policy.weight, &policy.weight_gradient})
    if (is_lossy(one->codec)) return true;
  return false;
}

}  // namespace laconic
