// GNMT as its second public version has it: attention looks from the first layer of the decoder to
// the encoder once, for all tokens, and what it finds goes into every layer behind.
//
//   source embedding   source                -> x [source tokens, width]
//   encoder 0          x, source length      -> x [source tokens, 2 width]: both directions
//   encoder i          x                     -> x [source tokens, width]; from the third on x + ...
//   target embedding   x, ids                -> memory [source tokens, width], y [tokens, width]
//   decoder 0          memory, y             -> found [tokens, width], y
//   decoder i          found, y              -> found, y; the last one y alone
//   head               y, targets            -> mean loss; a table and a bias of its own
#include "laconic/architecture/gnmt_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/architecture/lstm_spec.hpp"
#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

namespace {

ParameterSpec gnmt_table(const std::string& name, const GnmtShape& s,
                         std::vector<std::string> looked_up_by = {}) {
  return {.name = name,
          .sizes = {s.vocabulary, s.width},
          .deviation = kDeviation,
          .is_table = true,
          .looked_up_by = std::move(looked_up_by),
          .role = Role::table};
}

std::vector<ParameterSpec> gnmt_encoder(const GnmtShape& s, std::int64_t layer) {
  const std::string at = fmt::format("encoder.layers.{}.", layer);
  std::vector<ParameterSpec> specs =
      lstm_parameters(at, layer == 1 ? 2 * s.width : s.width, s.width, s.width);
  if (layer == 0)
    for (ParameterSpec& p : lstm_parameters(at, s.width, s.width, s.width, "_reverse"))
      specs.push_back(std::move(p));
  return specs;
}

// Bahdanau's, normed: scores are v tanh(q + k + bias), v a direction and its length.
std::vector<ParameterSpec> gnmt_attention(const GnmtShape& s) {
  const double evenly = 1 / std::sqrt(3.0 * static_cast<double>(s.width));
  const auto map = [&](const char* name) {
    return ParameterSpec{.name = name,
                         .sizes = {s.width, s.width},
                         .deviation = evenly,
                         .is_out_in = true,
                         .role = Role::up};
  };
  return {map("decoder.attention.linear_q.weight"),
          map("decoder.attention.linear_k.weight"),
          {.name = "decoder.attention.linear_att", .sizes = {s.width}, .deviation = evenly},
          {.name = "decoder.attention.normalize_scalar",
           .sizes = {1},
           .mean = 1 / std::sqrt(static_cast<double>(s.width)),
           .role = Role::common_vector},
          {.name = "decoder.attention.normalize_bias", .sizes = {s.width}}};
}

std::vector<ParameterSpec> gnmt_decoder(const GnmtShape& s, std::int64_t layer) {
  std::vector<ParameterSpec> specs =
      lstm_parameters(fmt::format("decoder.layers.{}.", layer), layer == 0 ? s.width : 2 * s.width,
                      s.width, s.width);
  if (layer == 0)
    for (ParameterSpec& p : gnmt_attention(s)) specs.push_back(std::move(p));
  return specs;
}

}  // namespace

ModelSpec gnmt_spec(const GnmtShape& s, std::int64_t tokens, std::int64_t target_tokens) {
  const std::int64_t written = target_tokens > 0    ? target_tokens
                               : tokens < s.context ? std::min(tokens, s.target_context)
                                                    : s.target_context;
  const std::int64_t w = s.width;
  const auto width = static_cast<double>(w), source = static_cast<double>(tokens),
             target = static_cast<double>(written);
  const auto encoded = [&](std::int64_t features) {
    return std::vector<SeamTensor>{{"x", {tokens, features}, "source"}};
  };
  const SeamTensor y = {"y", {written, w}};
  SpecBuilder spec;
  spec.add({.name = "source embedding",
            .kind = "embedding",
            .uses = spec.take({gnmt_table("encoder.embedding.weight", s, {"source"})}),
            .out = encoded(w)});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::int64_t inputs = layer == 1 ? 2 * w : w, directions = layer == 0 ? 2 : 1;
    spec.add({.name = fmt::format("encoder {}", layer),
              .kind = layer < 2 ? fmt::format("encoder {}", layer) : "encoder",
              .uses = spec.take(gnmt_encoder(s, layer)),
              .out = encoded(directions * w),
              .multiply_adds =
                  source * static_cast<double>(directions) * lstm_multiply_adds(inputs, w, w),
              .kept = tokens * directions * lstm_kept(inputs, w, w)});
  }
  spec.add({.name = "target embedding",
            .kind = "target embedding",
            .uses = spec.take({gnmt_table("decoder.embedding.weight", s, {"ids"})}),
            .out = {{"memory", {tokens, w}, "source"}, y}});
  for (std::int64_t layer = 0; layer < s.decoder_layers; ++layer) {
    const bool is_first = layer == 0, is_last = layer + 1 == s.decoder_layers;
    const std::int64_t inputs = is_first ? w : 2 * w;
    const double attention =
        is_first ? (source + target) * width * width + 2 * source * target * width : 0;
    spec.add({.name = fmt::format("decoder {}", layer),
              .kind = is_first ? "decoder 0" : "decoder",
              .uses = spec.take(gnmt_decoder(s, layer)),
              .out = is_last ? std::vector<SeamTensor>{y}
                             : std::vector<SeamTensor>{{"found", {written, w}}, y},
              .multiply_adds = target * lstm_multiply_adds(inputs, w, w) + attention,
              .kept = written * lstm_kept(inputs, w, w) +
                      (is_first ? (2 * tokens + 2 * written) * w + 2 * tokens * written : 0)});
  }
  spec.add({.name = "head",
            .kind = "head",
            .uses = spec.take(
                {gnmt_table("classifier.weight", s),
                 {.name = "classifier.bias", .sizes = {s.vocabulary}, .role = Role::table_bias}}),
            .out = {},
            .multiply_adds = target * width * static_cast<double>(s.vocabulary),
            .kept = written * (w + s.vocabulary + 1)});
  return spec.finish();
}

}  // namespace laconic
