// Llama. Names and layouts of parameters are Hugging Face's (weights of linear maps are [out, in]),
// so a checkpoint is readable by others as it is.
//
//   embedding   ids                 -> x [tokens, width]
//   layer i     x                   -> x
//   head        x, targets          -> mean loss; uses the embedding again where it is tied
#include "laconic/architecture/llama_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

namespace {

std::vector<ParameterSpec> llama_layer(const LlamaShape& s, std::int64_t layer) {
  // Branches add up in the residual stream, two a layer: they begin small, as GPT-2's do.
  const double branch = kDeviation / std::sqrt(2.0 * static_cast<double>(s.layers));
  const std::int64_t queries = s.heads * s.head_width, keys = s.key_heads * s.head_width;
  std::vector<ParameterSpec> specs;
  const auto add = [&](const char* leaf, std::vector<std::int64_t> sizes, double mean,
                       double deviation, Role role) {
    const bool is_out_in = sizes.size() == 2;
    specs.push_back({.name = fmt::format("model.layers.{}.{}.weight", layer, leaf),
                     .sizes = std::move(sizes),
                     .mean = mean,
                     .deviation = deviation,
                     .is_out_in = is_out_in,
                     .role = role});
  };
  const auto add_bias = [&](const char* leaf, std::int64_t size) {
    if (s.has_qkv_bias)
      specs.push_back({.name = fmt::format("model.layers.{}.{}.bias", layer, leaf),
                       .sizes = {size},
                       .role = Role::inner_vector});
  };
  add("input_layernorm", {s.width}, 1, 0, Role::stream_vector);
  add("self_attn.q_proj", {queries, s.width}, 0, kDeviation, Role::up);
  add_bias("self_attn.q_proj", queries);
  add("self_attn.k_proj", {keys, s.width}, 0, kDeviation, Role::up);
  add_bias("self_attn.k_proj", keys);
  add("self_attn.v_proj", {keys, s.width}, 0, kDeviation, Role::up);
  add_bias("self_attn.v_proj", keys);
  if (s.has_qk_norm) {
    add("self_attn.q_norm", {s.head_width}, 1, 0, Role::common_vector);
    add("self_attn.k_norm", {s.head_width}, 1, 0, Role::common_vector);
  }
  add("self_attn.o_proj", {s.width, queries}, 0, branch, Role::down);
  add("post_attention_layernorm", {s.width}, 1, 0, Role::stream_vector);
  add("mlp.gate_proj", {s.hidden, s.width}, 0, kDeviation, Role::up);
  add("mlp.up_proj", {s.hidden, s.width}, 0, kDeviation, Role::up);
  add("mlp.down_proj", {s.width, s.hidden}, 0, branch, Role::down);
  return specs;
}

double multiply_adds_of_layer(const LlamaShape& s, double tokens) {
  const auto width = static_cast<double>(s.width), hidden = static_cast<double>(s.hidden);
  const auto queries = static_cast<double>(s.heads * s.head_width);
  const auto keys = static_cast<double>(s.key_heads * s.head_width);
  return tokens * (2 * width * (queries + keys) + 3 * width * hidden + queries * tokens);
}

// What a layer keeps of a token: input, both norms and the sum of the first branch (4 widths),
// rotated queries and keys, values and what attention puts out, gate, up and their product, and
// the sums of softmax and norms. Norms of queries and keys keep what they were given, too.
std::int64_t kept_by_layer(const LlamaShape& s) {
  const std::int64_t queries = s.heads * s.head_width, keys = s.key_heads * s.head_width;
  std::int64_t kept = 4 * s.width + 2 * queries + 2 * keys + 3 * s.hidden + s.heads + 2;
  if (s.has_qk_norm) kept += queries + keys + s.heads + s.key_heads;
  return kept;
}

}  // namespace

ModelSpec llama_spec(const LlamaShape& s, std::int64_t tokens) {
  const auto width = static_cast<double>(s.width), length = static_cast<double>(tokens);
  const std::vector<SeamTensor> stream = {{"x", {tokens, s.width}}};
  const std::vector<std::int64_t> table = {s.vocabulary, s.width};
  const std::vector<std::string> by_ids =
      s.is_tied ? std::vector<std::string>() : std::vector<std::string>{"ids"};
  SpecBuilder builder;
  builder.add({.name = "embedding",
               .kind = "embedding",
               .uses = builder.take({{.name = "model.embed_tokens.weight",
                                      .sizes = table,
                                      .deviation = kDeviation,
                                      .looked_up_by = by_ids,
                                      .role = Role::table}}),
               .out = stream});
  for (std::int64_t layer = 0; layer < s.layers; ++layer)
    builder.add({.name = fmt::format("layer {}", layer),
                 .kind = "layer",
                 .uses = builder.take(llama_layer(s, layer)),
                 .out = stream,
                 .multiply_adds = multiply_adds_of_layer(s, length),
                 .kept = tokens * kept_by_layer(s)});
  // Its norm, and the table behind it or, tied, before it: numbers ascend.
  std::vector<std::size_t> of_head = builder.take({{"model.norm.weight", {s.width}, 1, 0}});
  if (s.is_tied)
    of_head.insert(of_head.begin(), 0);
  else
    of_head.push_back(builder.take({{.name = "lm_head.weight",
                                     .sizes = table,
                                     .mean = 0,
                                     .deviation = kDeviation,
                                     .is_out_in = true,
                                     .role = Role::table}})[0]);
  builder.add({.name = "head",
               .kind = "head",
               .uses = std::move(of_head),
               .out = {},
               .multiply_adds = length * width * static_cast<double>(s.vocabulary),
               .kept = tokens * (2 * s.width + s.vocabulary + 2)});
  return builder.finish();
}

std::vector<double> turns_of(const Rope& rope, std::int64_t head_width) {
  std::vector<double> turns;
  for (std::int64_t i = 0; i < head_width / 2; ++i) {
    const double turn =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
    // How often the pair goes round within the context that the model was trained with.
    const double rounds = static_cast<double>(rope.trained_context) * turn / (2 * std::numbers::pi);
    switch (rope.scaling) {
      case RopeScaling::none: turns.push_back(turn); break;
      case RopeScaling::linear: turns.push_back(turn / rope.factor); break;
      case RopeScaling::llama3: {
        const double share =
            std::clamp((rounds - rope.low_turns) / (rope.high_turns - rope.low_turns), 0.0, 1.0);
        turns.push_back((1 - share) * turn / rope.factor + share * turn);
        break;
      }
    }
  }
  return turns;
}

}  // namespace laconic
