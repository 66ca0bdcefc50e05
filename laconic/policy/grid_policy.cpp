#include "laconic/policy/grid_policy.hpp"

#include "laconic/config/grid_choice.hpp"
#include "laconic/config/place_choice.hpp"

namespace laconic {

namespace {

GridClassPolicy policy_for(const std::string& codec, const std::string& layers, bool has_feedback,
                           const ModelSpec& spec) {
  const std::vector<std::size_t> blocks = layer_blocks(spec);
  const std::vector<bool> chosen = chosen_places(layers, static_cast<std::int64_t>(blocks.size()));
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
      .activation =
          policy_for(config.tp_activation.codec, config.tp_activation.layers, false, spec),
      .gradient = policy_for(config.tp_gradient.codec, config.tp_gradient.layers, false, spec),
      .weight = policy_for(weight.codec, weight.layers, false, spec),
      .weight_gradient = policy_for(weight.gradient, weight.layers, weight.feedback, spec)};
  policy.activation.is_masked = config.tp_activation.masked;
  policy.activation.is_gathered = config.tp_activation.sum == SumForm::gathered;
  policy.gradient.is_gathered = config.tp_gradient.sum == SumForm::gathered;
  return policy;
}

const GridClassPolicy& class_of(const GridPolicy& policy, const GridTraffic& t) {
  const bool is_gather = t.collective == GridCollective::all_gather;
  if (t.use == CollectiveUse::weight) return is_gather ? policy.weight : policy.weight_gradient;
  const bool is_again = t.use == CollectiveUse::input && is_gather;
  return t.is_backward && !is_again ? policy.gradient : policy.activation;
}

CodecSpec message_codec(const GridClassPolicy& policy, std::size_t block) {
  if (!policy.blocks[block]) return Raw{};
  const auto* learned = std::get_if<AutoEncoder>(&policy.codec);
  if (learned == nullptr) return policy.codec;
  return learned->values == Dtype::f32 ? CodecSpec(Raw{}) : Half{learned->values};
}

bool is_gathered(const GridPolicy& policy, const GridTraffic& t) {
  if (t.map == kNoMap || t.collective != GridCollective::all_reduce) return false;
  const GridClassPolicy& one = class_of(policy, t);
  return one.is_gathered && is_lossy(message_codec(one, t.block));
}

double received_elements(const GridPolicy& policy, const GridTraffic& t, const Mesh& mesh) {
  return is_gathered(policy, t) ? t.elements * extent(mesh, t.axes) / 2 : t.elements;
}

GridBytes grid_bytes_of(const RunConfig& config, const ModelSpec& spec) {
  constexpr std::int64_t kRows = 256, kColumns = 256;
  const Mesh mesh{.tp = grid_of(config)};
  return [policy = grid_policy_of(config, spec), config, mesh](const GridTraffic& t) {
    const Dtype dtype = message_dtype(config, t);
    if (t.map == kNoMap)
      return GridWire{.bytes = t.elements * static_cast<double>(bytes_of(dtype))};
    const CodecSpec codec = message_codec(class_of(policy, t), t.block);
    const double bytes = static_cast<double>(max_payload_bytes(codec, {dtype, {kRows, kColumns}}));
    return GridWire{
        .bytes = received_elements(policy, t, mesh) * bytes / static_cast<double>(kRows * kColumns),
        .is_encoded = is_lossy(codec),
        .is_gathered = is_gathered(policy, t)};
  };
}

bool is_lossy(const GridPolicy& policy) {
  for (const GridClassPolicy* one :
       {&policy.activation, &policy.gradient, &policy.weight, &policy.weight_gradient})
    if (is_lossy(one->codec)) return true;
  return false;
}

}  // namespace laconic
