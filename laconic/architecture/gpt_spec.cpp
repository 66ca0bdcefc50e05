// GPT-2. Names and layouts of parameters are Hugging Face's (weights of linear maps are [in, out]),
// so a checkpoint is readable by others as it is.
//
//   embedding   ids                 -> x [tokens, width]
//   layer i     x                   -> x
//   head        x, targets          -> mean loss; uses wte.weight again
#include "laconic/architecture/gpt_spec.hpp"

#include <fmt/format.h>

#include <cmath>

#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

namespace {

std::vector<ParameterSpec> layer_parameters(const GptShape& s, std::int64_t layer) {
  // Branches add up in the residual stream, two a layer: GPT-2 shrinks what they begin with.
  const double branch = kDeviation / std::sqrt(2.0 * static_cast<double>(s.layers));
  std::vector<ParameterSpec> specs;
  const auto add = [&](const char* leaf, std::vector<std::int64_t> sizes, double mean,
                       double deviation, Role role, std::int64_t parts = 1) {
    specs.push_back({.name = fmt::format("h.{}.{}", layer, leaf),
                     .sizes = std::move(sizes),
                     .mean = mean,
                     .deviation = deviation,
                     .role = role,
                     .parts = parts});
  };
  add("ln_1.weight", {s.width}, 1, 0, Role::stream_vector);
  add("ln_1.bias", {s.width}, 0, 0, Role::stream_vector);
  add("attn.c_attn.weight", {s.width, 3 * s.width}, 0, kDeviation, Role::up, 3);
  add("attn.c_attn.bias", {3 * s.width}, 0, 0, Role::inner_vector, 3);
  add("attn.c_proj.weight", {s.width, s.width}, 0, branch, Role::down);
  add("attn.c_proj.bias", {s.width}, 0, 0, Role::stream_vector);
  add("ln_2.weight", {s.width}, 1, 0, Role::stream_vector);
  add("ln_2.bias", {s.width}, 0, 0, Role::stream_vector);
  add("mlp.c_fc.weight", {s.width, 4 * s.width}, 0, kDeviation, Role::up);
  add("mlp.c_fc.bias", {4 * s.width}, 0, 0, Role::inner_vector);
  add("mlp.c_proj.weight", {4 * s.width, s.width}, 0, branch, Role::down);
  add("mlp.c_proj.bias", {s.width}, 0, 0, Role::stream_vector);
  return specs;
}

}  // namespace

// What a layer keeps of a token: input, both norms, sum of the first branch and attention (5
// widths), queries, keys and values (3), the feed-forward part before and after its activation (8),
// sums of softmax and norms. The head keeps its input, the norm and the logits. The embedding keeps
// nothing: what it puts out is the first layer's input.
ModelSpec gpt_spec(const GptShape& s, std::int64_t tokens) {
  const auto width = static_cast<double>(s.width), length = static_cast<double>(tokens);
  const std::vector<SeamTensor> stream = {{"x", {tokens, s.width}}};
  SpecBuilder spec;
  spec.add({.name = "embedding",
            .kind = "embedding",
            .uses = spec.take({{.name = "wte.weight",
                                .sizes = {s.vocabulary, s.width},
                                .deviation = kDeviation,
                                .role = Role::table},
                               {"wpe.weight", {s.context, s.width}, 0, kDeviation}}),
            .out = stream,
            .multiply_adds = 0});
  for (std::int64_t layer = 0; layer < s.layers; ++layer)
    spec.add({.name = fmt::format("layer {}", layer),
              .kind = "layer",
              .uses = spec.take(layer_parameters(s, layer)),
              .out = stream,
              .multiply_adds = length * (12 * width * width + width * length),
              .kept = tokens * (16 * s.width + s.heads + 4)});
  std::vector<std::size_t> of_head =
      spec.take({{"ln_f.weight", {s.width}, 1, 0}, {"ln_f.bias", {s.width}, 0, 0}});
  of_head.insert(of_head.begin(), 0);  // wte.weight
  spec.add({.name = "head",
            .kind = "head",
            .uses = std::move(of_head),
            .out = {},
            .multiply_adds = length * width * static_cast<double>(s.vocabulary),
            .kept = tokens * (2 * s.width + s.vocabulary + 3)});
  return spec.finish();
}

}  // namespace laconic
