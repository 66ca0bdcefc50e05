// BERT. Names and layouts of parameters are Hugging Face's (weights of linear maps are [out, in]),
// so a checkpoint is readable by others as it is.
//
//   embedding   ids, types             -> x [tokens, width]
//   layer i     x, length              -> x
//   head        x, what was asked      -> mean loss; for hidden tokens it uses the embedding again
#include "laconic/architecture/bert_spec.hpp"

#include <fmt/format.h>

#include "laconic/architecture/spec_builder.hpp"

namespace laconic {

namespace {

// A weight [out, in] and its bias.
void add_linear(std::vector<ParameterSpec>& specs, const std::string& name, std::int64_t out,
                std::int64_t in, Role role, Role bias) {
  specs.push_back({.name = name + ".weight",
                   .sizes = {out, in},
                   .mean = 0,
                   .deviation = kDeviation,
                   .is_out_in = true,
                   .role = role});
  specs.push_back({.name = name + ".bias", .sizes = {out}, .role = bias});
}

void add_norm(std::vector<ParameterSpec>& specs, const std::string& name, std::int64_t width) {
  specs.push_back({.name = name + ".weight", .sizes = {width}, .mean = 1});
  specs.push_back({.name = name + ".bias", .sizes = {width}});
}

// Whether the head uses the table of words.
bool finds_words(const BertShape& s) {
  return s.head == BertHead::masked || s.head == BertHead::pretraining;
}

std::vector<ParameterSpec> bert_embedding(const BertShape& s) {
  const std::string at = "bert.embeddings.";
  std::vector<ParameterSpec> specs = {
      {.name = at + "word_embeddings.weight",
       .sizes = {s.vocabulary, s.width},
       .deviation = kDeviation,
       .looked_up_by =
           finds_words(s) ? std::vector<std::string>() : std::vector<std::string>{"ids"},
       .role = Role::table},
      {at + "position_embeddings.weight", {s.context, s.width}, 0, kDeviation},
      {at + "token_type_embeddings.weight", {s.types, s.width}, 0, kDeviation}};
  add_norm(specs, at + "LayerNorm", s.width);
  return specs;
}

std::vector<ParameterSpec> bert_layer(const BertShape& s, std::int64_t layer) {
  const std::string at = fmt::format("bert.encoder.layer.{}.", layer);
  std::vector<ParameterSpec> specs;
  for (const char* part : {"query", "key", "value"})
    add_linear(specs, at + "attention.self." + part, s.width, s.width, Role::up,
               Role::inner_vector);
  add_linear(specs, at + "attention.output.dense", s.width, s.width, Role::down,
             Role::stream_vector);
  add_norm(specs, at + "attention.output.LayerNorm", s.width);
  add_linear(specs, at + "intermediate.dense", s.hidden, s.width, Role::up, Role::inner_vector);
  add_linear(specs, at + "output.dense", s.width, s.hidden, Role::down, Role::stream_vector);
  add_norm(specs, at + "output.LayerNorm", s.width);
  return specs;
}

std::vector<ParameterSpec> bert_head(const BertShape& s) {
  std::vector<ParameterSpec> specs;
  if (s.head == BertHead::pretraining || s.head == BertHead::classify ||
      s.head == BertHead::regress)
    add_linear(specs, "bert.pooler.dense", s.width, s.width, Role::up, Role::inner_vector);
  if (finds_words(s)) {
    specs.push_back(
        {.name = "cls.predictions.bias", .sizes = {s.vocabulary}, .role = Role::table_bias});
    add_linear(specs, "cls.predictions.transform.dense", s.width, s.width, Role::across,
               Role::stream_vector);
    add_norm(specs, "cls.predictions.transform.LayerNorm", s.width);
  }
  if (s.head == BertHead::pretraining)
    add_linear(specs, "cls.seq_relationship", 2, s.width, Role::inner_narrow, Role::inner_few);
  if (s.head == BertHead::classify)
    add_linear(specs, "classifier", s.labels, s.width, Role::inner_narrow, Role::inner_few);
  if (s.head == BertHead::regress)
    add_linear(specs, "classifier", 1, s.width, Role::inner_narrow, Role::inner_few);
  if (s.head == BertHead::span)
    add_linear(specs, "qa_outputs", 2, s.width, Role::stream_narrow, Role::stream_few);
  return specs;
}

// Share of the tokens that is hidden, for costs: only these rows reach the vocabulary.
constexpr double kHiddenShare = 0.15;

}  // namespace

// What a layer keeps of a token: input, queries, keys, values and what attention puts out (5
// widths), both sums and the norm of the first (3), the feed-forward part before and after its
// activation, sums of softmax and norms.
ModelSpec bert_spec(const BertShape& s, std::int64_t tokens) {
  const auto width = static_cast<double>(s.width), hidden = static_cast<double>(s.hidden),
             length = static_cast<double>(tokens);
  const std::vector<SeamTensor> stream = {{"x", {tokens, s.width}}};
  SpecBuilder spec;
  spec.add({.name = "embedding",
            .kind = "embedding",
            .uses = spec.take(bert_embedding(s)),
            .out = stream,
            .kept = tokens * (s.width + 2)});
  for (std::int64_t layer = 0; layer < s.layers; ++layer)
    spec.add(
        {.name = fmt::format("layer {}", layer),
         .kind = "layer",
         .uses = spec.take(bert_layer(s, layer)),
         .out = stream,
         .multiply_adds = length * (4 * width * width + 2 * width * hidden + 2 * width * length),
         .kept = tokens * (8 * s.width + 2 * s.hidden + s.heads + 4)});
  const bool has_words = finds_words(s);
  std::vector<std::size_t> of_head = spec.take(bert_head(s));
  if (has_words) of_head.insert(of_head.begin(), 0);  // the table of words
  const double rows = kHiddenShare * length, vocabulary = static_cast<double>(s.vocabulary);
  spec.add({.name = "head",
            .kind = "head",
            .uses = std::move(of_head),
            .out = {},
            .multiply_adds = has_words ? rows * width * (width + vocabulary) : width * width,
            .kept = has_words ? static_cast<std::int64_t>(rows * (4 * width + vocabulary))
                              : 4 * s.width});
  return spec.finish();
}

}  // namespace laconic
