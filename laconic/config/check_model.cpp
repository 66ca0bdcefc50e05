// What keeps [model] from being one.
#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/config/checker.hpp"
#include "laconic/config/model_family.hpp"

namespace laconic {

namespace {

// Keys that the kind of model would pass over in silence.
void refuse_keys_of_others(Checker& c, const ModelSection& m) {
  struct Row {
    const char* key;
    bool is_set;
    std::vector<ModelKind> kinds;
  };
  const ModelSection plain;
  const std::vector<ModelKind> llama = {ModelKind::llama}, seq2seq = {ModelKind::seq2seq};
  const Row rows[] = {
      {"key_heads", m.key_heads != plain.key_heads, llama},
      {"head_width", m.head_width != plain.head_width, llama},
      {"tied", m.tied != plain.tied, llama},
      {"qkv_bias", m.qkv_bias != plain.qkv_bias, llama},
      {"qk_norm", m.qk_norm != plain.qk_norm, llama},
      {"rope_theta", m.rope_theta != plain.rope_theta, llama},
      {"rope_scaling", m.rope_scaling != plain.rope_scaling, llama},
      {"rope_factor", m.rope_factor != plain.rope_factor, llama},
      {"rope_low_turns", m.rope_low_turns != plain.rope_low_turns, llama},
      {"rope_high_turns", m.rope_high_turns != plain.rope_high_turns, llama},
      {"rope_trained_context", m.rope_trained_context != plain.rope_trained_context, llama},
      {"heads",
       m.heads != plain.heads,
       {ModelKind::gpt, ModelKind::llama, ModelKind::bert, ModelKind::seq2seq}},
      {"hidden",
       m.hidden != plain.hidden,
       {ModelKind::llama, ModelKind::bert, ModelKind::seq2seq, ModelKind::lstm}},
      {"labels", m.labels != plain.labels, {ModelKind::bert}},
      {"decoder_layers",
       m.decoder_layers != plain.decoder_layers,
       {ModelKind::seq2seq, ModelKind::gnmt}},
      {"norm", m.norm != plain.norm, seq2seq},
      {"positions", m.positions != plain.positions, seq2seq},
      {"sharing", m.sharing != plain.sharing, seq2seq},
      {"project_after",
       !m.project_after.empty(),
       {ModelKind::gpt, ModelKind::llama, ModelKind::bert}},
      {"projection", m.projection != plain.projection, {ModelKind::lstm}}};
  for (const Row& row : rows) {
    if (!row.is_set || std::ranges::find(row.kinds, m.kind) != row.kinds.end()) continue;
    std::vector<std::string> names;
    for (const ModelKind kind : row.kinds)
      names.push_back(fmt::format("\"{}\"", name_in(kModelKindNames, kind)));
    c.require(false, std::string("model.") + row.key,
              fmt::format("is for models of kind {} alone, and this is \"{}\"",
                          fmt::join(names, " or "), name_in(kModelKindNames, m.kind)));
  }
}

void check_projection(Checker& c, const ModelSection& m) {
  const ModelSection plain;
  c.require(parse_layer_list(m.project_after).has_value(), "model.project_after",
            fmt::format("\"{}\" is no list of layers, as 2,4,6", m.project_after));
  c.in_range("model.project_rank", m.project_rank, 0, 1 << 24);
  if (!m.project_after.empty()) return;
  for (const auto& [key, is_set] : {std::pair{"rank", m.project_rank != plain.project_rank},
                                    {"basis", m.project_basis != plain.project_basis},
                                    {"start", m.project_start != plain.project_start},
                                    {"anchor", m.project_anchor != plain.project_anchor}})
    c.require(!is_set, std::string("model.project_") + key,
              "is of no boundary: project_after says behind which layers they are");
}

}  // namespace

void check_model(Checker& c, const RunConfig& config) {
  const ModelSection& model = config.model;
  c.at_least("model.layers", model.layers, 1);
  c.at_least("model.width", model.width, 1);
  c.at_least("model.heads", model.heads, 1);
  c.at_least("model.context", model.context, 1);
  c.at_least("model.vocabulary", model.vocabulary, 0);
  for (const auto& [key, value] : {std::pair{"model.key_heads", model.key_heads},
                                   {"model.head_width", model.head_width},
                                   {"model.hidden", model.hidden},
                                   {"model.labels", model.labels},
                                   {"model.decoder_layers", model.decoder_layers}})
    c.at_least(key, value, 0);
  // Large enough for any model, small enough that products of two stay inside 64 bits.
  for (const auto& [key, value] : {std::pair{"model.layers", model.layers},
                                   {"model.width", model.width},
                                   {"model.hidden", model.hidden},
                                   {"model.head_width", model.head_width},
                                   {"model.context", model.context},
                                   {"model.labels", model.labels},
                                   {"model.decoder_layers", model.decoder_layers},
                                   {"model.vocabulary", model.vocabulary}})
    c.at_most(key, value, 1 << 24);
  const auto positive = {model.layers, model.width, model.heads, model.context};
  const auto given = {model.key_heads, model.head_width, model.hidden, model.decoder_layers};
  const bool has_sizes = std::min(positive) >= 1 && std::min(given) >= 0 &&
                         std::max(std::max(positive), std::max(given)) <= 1 << 24;
  if (has_sizes) {
    if (model.kind == ModelKind::llama && model.head_width == 0)
      c.require(model.width % model.heads == 0, "model.heads",
                fmt::format("heads = {} does not divide width = {}, and there is no head_width",
                            model.heads, model.width));
    const Family family = family_of(config, {.vocabulary = 1, .labels = 2});
    Problems of_family = check(family);
    if (has_boundary_codes(config))
      for (Problem& p : of_family)
        if (p.where.starts_with("model.project_")) p.where = "pp.activation.codec";
    append(c.problems, std::move(of_family));
    if (model.start.empty()) append(c.problems, check_task(family, config));
  }
  check_projection(c, model);
  c.in_range("model.dropout", model.dropout, 0, 1);
  if (!model.start.empty()) return;  // a folder decides, and has its own kind
  refuse_keys_of_others(c, model);
}

}  // namespace laconic
