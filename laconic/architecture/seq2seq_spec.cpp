// The encoder-decoder Transformer. Weights of linear maps are [out, in].
//
//   source embedding   source               -> x [source tokens, width]
//   encoder i          x, source length     -> x
//   target embedding   x, ids               -> memory [source tokens, width], y [tokens, width]
//   decoder i          memory, y            -> memory, y; the last one y alone
//   head               y, targets           -> mean loss
//
// The chain of blocks stays a chain, since decoders hand the memory on.
#include "laconic/architecture/seq2seq_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

namespace {

class Seq2SeqParameters {
 public:
  Seq2SeqParameters(const Seq2SeqShape& shape, std::string at) : s_(shape), at_(std::move(at)) {}

  // Into a branch, or out of it.
  void linear(const std::string& name, std::int64_t out, std::int64_t in, Role role) {
    specs_.push_back({.name = at_ + name + ".weight",
                      .sizes = {out, in},
                      .mean = 0,
                      .deviation = kDeviation,
                      .is_out_in = true,
                      .role = role});
    specs_.push_back({.name = at_ + name + ".bias",
                      .sizes = {out},
                      .role = role == Role::up ? Role::inner_vector : Role::stream_vector});
  }
  void norm(const std::string& name) {
    specs_.push_back({.name = at_ + name + ".weight", .sizes = {s_.width}, .mean = 1});
    specs_.push_back({.name = at_ + name + ".bias", .sizes = {s_.width}});
  }
  void attention(const std::string& name) {
    for (const char* part : {".q_proj", ".k_proj", ".v_proj"})
      linear(name + part, s_.width, s_.width, Role::up);
    linear(name + ".out_proj", s_.width, s_.width, Role::down);
    norm(name + "_layer_norm");
  }
  void feed_forward() {
    linear("fc1", s_.hidden, s_.width, Role::up);
    linear("fc2", s_.width, s_.hidden, Role::down);
    norm("final_layer_norm");
  }
  // `fields` look its rows up, and nothing else uses it; none: something does.
  void table(const std::string& name, std::int64_t rows, Role role = Role::table,
             const std::vector<std::string>& fields = {}) {
    specs_.push_back({.name = at_ + name + ".weight",
                      .sizes = {rows, s_.width},
                      .mean = 0,
                      .deviation = kDeviation,
                      .is_table = true,
                      .looked_up_by = fields,
                      .role = role});
  }
  std::vector<ParameterSpec> take() { return std::move(specs_); }

 private:
  const Seq2SeqShape& s_;
  std::string at_;
  std::vector<ParameterSpec> specs_;
};

std::vector<ParameterSpec> source_embedding(const Seq2SeqShape& s) {
  std::vector<std::string> fields;
  if (s.sharing != TableSharing::all) fields.emplace_back("source");
  if (s.sharing == TableSharing::input) fields.emplace_back("ids");
  Seq2SeqParameters p(s, is_input_shared(s.sharing) ? "shared" : "encoder.embed_tokens");
  p.table("", s.vocabulary, Role::table, fields);
  std::vector<ParameterSpec> specs = p.take();
  if (s.positions == PositionKind::learned)
    specs.push_back({"encoder.embed_positions.weight", {s.context, s.width}, 0, kDeviation});
  return specs;
}

std::vector<ParameterSpec> target_embedding(const Seq2SeqShape& s) {
  Seq2SeqParameters p(s, "");
  if (s.norm == NormPlace::pre) p.norm("encoder.layer_norm");
  if (!is_input_shared(s.sharing))
    p.table(
        "decoder.embed_tokens", s.vocabulary, Role::table,
        has_output_table(s.sharing) ? std::vector<std::string>{"ids"} : std::vector<std::string>());
  if (s.positions == PositionKind::learned)
    p.table("decoder.embed_positions", s.target_context, Role::stream_vector);
  return p.take();
}

std::vector<ParameterSpec> seq2seq_encoder(const Seq2SeqShape& s, std::int64_t layer) {
  Seq2SeqParameters p(s, fmt::format("encoder.layers.{}.", layer));
  p.attention("self_attn");
  p.feed_forward();
  return p.take();
}

std::vector<ParameterSpec> seq2seq_decoder(const Seq2SeqShape& s, std::int64_t layer) {
  Seq2SeqParameters p(s, fmt::format("decoder.layers.{}.", layer));
  p.attention("self_attn");
  p.attention("encoder_attn");
  p.feed_forward();
  return p.take();
}

}  // namespace

ModelSpec seq2seq_spec(const Seq2SeqShape& s, std::int64_t tokens, std::int64_t target_tokens) {
  const std::int64_t written = target_tokens > 0    ? target_tokens
                               : tokens < s.context ? std::min(tokens, s.target_context)
                                                    : s.target_context;
  const auto width = static_cast<double>(s.width), hidden = static_cast<double>(s.hidden),
             source = static_cast<double>(tokens), target = static_cast<double>(written);
  const std::vector<SeamTensor> encoded = {{"x", {tokens, s.width}, "source"}};
  const std::vector<SeamTensor> both = {{"memory", {tokens, s.width}, "source"},
                                        {"y", {written, s.width}}};
  SpecBuilder spec;
  spec.add({.name = "source embedding",
            .kind = "embedding",
            .uses = spec.take(source_embedding(s)),
            .out = encoded});
  for (std::int64_t layer = 0; layer < s.layers; ++layer)
    spec.add(
        {.name = fmt::format("encoder {}", layer),
         .kind = "encoder",
         .uses = spec.take(seq2seq_encoder(s, layer)),
         .out = encoded,
         .multiply_adds = source * (4 * width * width + 2 * width * hidden + 2 * width * source),
         .kept = tokens * (8 * s.width + 2 * s.hidden + s.heads + 4)});
  std::vector<std::size_t> of_target = spec.take(target_embedding(s));
  const bool has_own_table = !is_input_shared(s.sharing);
  // Where the target's table stands: behind the encoder's norm, if it is its own.
  const std::size_t table = has_own_table ? of_target[s.norm == NormPlace::pre ? 2 : 0] : 0;
  if (!has_own_table) of_target.insert(of_target.begin(), 0);
  spec.add({.name = "target embedding",
            .kind = "target embedding",
            .uses = std::move(of_target),
            .out = both,
            .kept = tokens * (s.width + 2)});
  for (std::int64_t layer = 0; layer < s.decoder_layers; ++layer) {
    const bool is_last = layer + 1 == s.decoder_layers;
    const double own = target * (6 * width * width + 2 * width * hidden + width * target);
    const double across = source * 2 * width * width + 2 * target * source * width;
    spec.add(
        {.name = fmt::format("decoder {}", layer),
         .kind = "decoder",
         .uses = spec.take(seq2seq_decoder(s, layer)),
         .out = is_last ? std::vector<SeamTensor>{both[1]} : both,
         .multiply_adds = own + across,
         .kept = written * (12 * s.width + 2 * s.hidden + 2 * s.heads + 6) + tokens * 3 * s.width});
  }
  Seq2SeqParameters p(s, "");
  if (s.norm == NormPlace::pre) p.norm("decoder.layer_norm");
  if (has_output_table(s.sharing)) p.table("output", s.vocabulary);
  std::vector<std::size_t> of_head = spec.take(p.take());
  if (!has_output_table(s.sharing)) of_head.insert(of_head.begin(), table);
  spec.add({.name = "head",
            .kind = "head",
            .uses = std::move(of_head),
            .out = {},
            .multiply_adds = target * width * static_cast<double>(s.vocabulary),
            .kept = written * (2 * s.width + s.vocabulary + 3)});
  return spec.finish();
}

}  // namespace laconic
