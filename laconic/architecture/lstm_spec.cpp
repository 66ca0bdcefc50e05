// A language model of LSTM layers. Names and layouts of a layer's parameters are torch.nn.LSTM's.
//
//   embedding   ids                 -> x [tokens, width]
//   layer i     x                   -> x: cells begin with zeros in every sample
//   head        x, targets          -> mean loss; a table and a bias of its own
#include "laconic/architecture/lstm_spec.hpp"

#include <fmt/format.h>

#include <cmath>

#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

std::vector<ParameterSpec> lstm_parameters(const std::string& at, std::int64_t inputs,
                                           std::int64_t cells, std::int64_t state,
                                           const std::string& end) {
  // torch.nn.LSTM draws evenly from +-1 / sqrt(cells), which deviates by this.
  const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(cells));
  std::vector<ParameterSpec> specs;
  const auto add = [&](const char* name, std::vector<std::int64_t> sizes, Role role) {
    const bool is_matrix = sizes.size() == 2;
    specs.push_back({.name = at + name + end,
                     .sizes = std::move(sizes),
                     .deviation = is_matrix ? deviation : 0,
                     .is_out_in = is_matrix,
                     .role = role});
  };
  add("weight_ih", {4 * cells, inputs}, Role::up);
  add("weight_hh", {4 * cells, state}, Role::up);
  add("bias_ih", {4 * cells}, Role::inner_vector);
  add("bias_hh", {4 * cells}, Role::inner_vector);
  if (state != cells) add("weight_hr", {state, cells}, Role::down);
  return specs;
}

double lstm_multiply_adds(std::int64_t inputs, std::int64_t cells, std::int64_t state) {
  const std::int64_t gates = 4 * cells * (inputs + state);
  return static_cast<double>(gates + (state != cells ? cells * state : 0));
}

std::int64_t lstm_kept(std::int64_t inputs, std::int64_t cells, std::int64_t state) {
  return inputs + 5 * cells + state + (state != cells ? cells : 0);
}

namespace {

std::vector<ParameterSpec> lstm_layer(const LstmShape& s, std::int64_t layer) {
  const bool is_projected = s.projection == LstmProjection::recurrent;
  const std::string at = fmt::format("lstm.{}.", layer);
  std::vector<ParameterSpec> specs =
      lstm_parameters(at, s.width, s.hidden, is_projected ? s.width : s.hidden);
  if (s.projection == LstmProjection::output) {
    specs.push_back({.name = at + "output.weight",
                     .sizes = {s.width, s.hidden},
                     .deviation = 1 / std::sqrt(3.0 * static_cast<double>(s.hidden)),
                     .is_out_in = true,
                     .role = Role::down});
    specs.push_back({.name = at + "output.bias", .sizes = {s.width}});
  }
  return specs;
}

}  // namespace

ModelSpec lstm_spec(const LstmShape& s, std::int64_t tokens) {
  const std::int64_t state = s.projection == LstmProjection::recurrent ? s.width : s.hidden;
  const std::int64_t compared = s.sampled > 0 ? s.sampled + 1 : s.vocabulary;
  const bool has_output = s.projection == LstmProjection::output;
  const auto length = static_cast<double>(tokens), width = static_cast<double>(s.width);
  const std::vector<SeamTensor> stream = {{"x", {tokens, s.width}}};
  // A sampled softmax reads rows of the targets and of the words that are drawn, and no others.
  const std::vector<std::string> looked_up =
      s.sampled > 0 ? std::vector<std::string>{"targets", kDrawnField} : std::vector<std::string>();
  SpecBuilder spec;
  spec.add({.name = "embedding",
            .kind = "embedding",
            .uses = spec.take({{.name = "embedding.weight",
                                .sizes = {s.vocabulary, s.width},
                                .deviation = kDeviation,
                                .is_table = true,
                                .looked_up_by = {"ids"},
                                .role = Role::table}}),
            .out = stream});
  for (std::int64_t layer = 0; layer < s.layers; ++layer)
    spec.add({.name = fmt::format("layer {}", layer),
              .kind = "layer",
              .uses = spec.take(lstm_layer(s, layer)),
              .out = stream,
              .multiply_adds = length * (lstm_multiply_adds(s.width, s.hidden, state) +
                                         (has_output ? width * static_cast<double>(s.hidden) : 0)),
              .kept = tokens * (lstm_kept(s.width, s.hidden, state) + (has_output ? s.width : 0))});
  spec.add({.name = "head",
            .kind = "head",
            .uses = spec.take(
                {{.name = "softmax.weight",
                  .sizes = {s.vocabulary, s.width},
                  .deviation = kDeviation,
                  .is_table = true,
                  .looked_up_by = looked_up,
                  .role = Role::table},
                 {.name = "softmax.bias", .sizes = {s.vocabulary}, .role = Role::table_bias}}),
            .out = {},
            .multiply_adds = length * width * static_cast<double>(compared),
            .kept = tokens * (s.width + compared + 1)});
  return spec.finish();
}

}  // namespace laconic
