#include "laconic/config/model_family.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/config/place_choice.hpp"
#include "laconic/schedule/partition.hpp"

namespace laconic {

namespace {

BertHead head_of_task(const TaskSection& task) {
  switch (task.kind) {
    case TaskKind::causal:
    case TaskKind::translate:
    case TaskKind::masked: return task.next_sentence ? BertHead::pretraining : BertHead::masked;
    case TaskKind::classify: return BertHead::classify;
    case TaskKind::regress: return BertHead::regress;
    case TaskKind::span: return BertHead::span;
  }
  return BertHead::masked;
}

std::int64_t labels_of(const RunConfig& config, const DataSizes& sizes) {
  if (config.task.kind != TaskKind::classify) return BertShape().labels;
  return config.model.labels > 0 ? config.model.labels : sizes.labels;
}

std::int64_t given_or(std::int64_t given, std::int64_t otherwise) {
  return given > 0 ? given : otherwise;
}

Family plain_family(const RunConfig& config, const DataSizes& sizes) {
  const ModelSection& m = config.model;
  const std::int64_t vocabulary = given_or(m.vocabulary, sizes.vocabulary);
  switch (m.kind) {
    case ModelKind::gpt:
      return GptShape{.layers = m.layers,
                      .width = m.width,
                      .heads = m.heads,
                      .context = m.context,
                      .vocabulary = vocabulary};
    case ModelKind::llama:
      return LlamaShape{.layers = m.layers,
                        .width = m.width,
                        .heads = m.heads,
                        .key_heads = given_or(m.key_heads, m.heads),
                        .head_width = given_or(m.head_width, m.width / m.heads),
                        .hidden = given_or(m.hidden, (8 * m.width / 3 + 63) / 64 * 64),
                        .context = m.context,
                        .vocabulary = vocabulary,
                        .rope = {.theta = m.rope_theta,
                                 .scaling = m.rope_scaling,
                                 .factor = m.rope_factor,
                                 .low_turns = m.rope_low_turns,
                                 .high_turns = m.rope_high_turns,
                                 .trained_context = m.rope_trained_context},
                        .has_qkv_bias = m.qkv_bias,
                        .has_qk_norm = m.qk_norm,
                        .is_tied = m.tied};
    case ModelKind::bert:
      return BertShape{.layers = m.layers,
                       .width = m.width,
                       .heads = m.heads,
                       .hidden = given_or(m.hidden, 4 * m.width),
                       .context = m.context,
                       .vocabulary = vocabulary,
                       .head = head_of_task(config.task),
                       .labels = labels_of(config, sizes)};
    case ModelKind::seq2seq:
      return Seq2SeqShape{.layers = m.layers,
                          .decoder_layers = given_or(m.decoder_layers, m.layers),
                          .width = m.width,
                          .heads = m.heads,
                          .hidden = given_or(m.hidden, 4 * m.width),
                          .context = m.context,
                          .target_context = m.context,
                          .vocabulary = vocabulary,
                          .norm = m.norm,
                          .positions = m.positions,
                          .sharing = m.sharing};
    case ModelKind::lstm:
      return LstmShape{.layers = m.layers,
                       .width = m.width,
                       .hidden = given_or(m.hidden, m.width),
                       .context = m.context,
                       .vocabulary = vocabulary,
                       .projection = m.projection,
                       .sampled = config.task.sampled};
    case ModelKind::gnmt:
      return GnmtShape{.layers = m.layers,
                       .decoder_layers = given_or(m.decoder_layers, m.layers),
                       .width = m.width,
                       .context = m.context,
                       .target_context = m.context,
                       .vocabulary = vocabulary};
  }
  LACONIC_ASSERT(false, "no such kind of model");
  return {};
}

// Layers behind which stages end whose activations are encoded, by a split that is written out;
// none where it is not.
std::vector<std::int64_t> coded_cuts(const RunConfig& config) {
  const std::string &split = config.pipeline.split, &chosen = config.pp_activation.boundaries;
  const std::int64_t boundaries = config.stages() - 1;
  if (boundaries < 1 || split == kSplitAuto || split == kSplitMeasured ||
      !check_places(chosen, boundaries, kBoundaryWords).empty())
    return {};
  std::vector<std::int64_t> cuts, layers;
  try {
    layers = parse_split(split);
  } catch (const ConfigError&) {
    return {};
  }
  if (static_cast<std::int64_t>(layers.size()) != config.stages()) return {};
  const std::vector<bool> is_coded = chosen_places(chosen, boundaries);
  std::int64_t before = 0;
  for (std::size_t q = 0; q < is_coded.size(); ++q) {
    before += layers[q];
    if (is_coded[q]) cuts.push_back(before);
  }
  return cuts;
}

}  // namespace

std::optional<AutoEncoder> learned_codec(std::string_view text) {
  try {
    const CodecSpec codec = parse_codec(text);
    if (const auto* learned = std::get_if<AutoEncoder>(&codec)) return *learned;
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

bool has_boundary_codes(const RunConfig& config) {
  return learned_codec(config.pp_activation.codec).has_value();
}

CodeBegin boundary_start(const RunConfig& config) {
  return has_boundary_codes(config) ? config.pp_activation.start : config.model.project_start;
}

Projection projection_in(const RunConfig& config) {
  const ModelSection& m = config.model;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  const bool is_drawn = boundary_start(config) == CodeBegin::noise;
  if (const auto learned = learned_codec(config.pp_activation.codec);
      learned && m.project_after.empty())
    return {.after = coded_cuts(config),
            .rank = learned->code,
            .basis = config.pp_activation.tied ? BasisKind::tied : BasisKind::maps,
            .seed = seed,
            .is_drawn = is_drawn};
  const auto after = parse_layer_list(m.project_after);
  if (!after || after->empty()) return {};
  return {.after = *after,
          .rank = m.project_rank,
          .basis = m.project_basis,
          .anchor = m.project_anchor,
          .seed = seed,
          .is_drawn = is_drawn};
}

Family family_of(const RunConfig& config, const DataSizes& sizes) {
  const Family family = plain_family(config, sizes);
  return can_project(family) ? with_projection(family, projection_in(config)) : family;
}

std::int64_t layers_between(const ModelSection& m) {
  if (m.kind != ModelKind::seq2seq && m.kind != ModelKind::gnmt) return m.layers;
  return m.layers + 1 + given_or(m.decoder_layers, m.layers);
}

Problems check_task(const Family& family, const RunConfig& config) {
  const TaskKind kind = config.task.kind;
  const bool is_translating = kind == TaskKind::translate,
             is_causal_task = kind == TaskKind::causal;
  const auto* bert = std::get_if<BertShape>(&family);
  const bool is_possible = translates(family) ? is_translating
                           : bert != nullptr  ? !is_translating && !is_causal_task
                                              : is_causal_task;
  Problems problems;
  if (!is_possible)
    problems.push_back(
        {"task.kind",
         fmt::format("kind = \"{}\" is nothing that this model does ({}): gpt, llama and lstm do "
                     "\"causal\", seq2seq and gnmt do \"translate\", bert the others",
                     name_in(kTaskKindNames, kind), to_text(family))});
  if (config.task.sampled > 0 && !std::holds_alternative<LstmShape>(family))
    problems.push_back({"task.sampled",
                        fmt::format("sampled = {} with this model ({}): only an lstm is trained on "
                                    "drawn words",
                                    config.task.sampled, to_text(family))});
  if (bert != nullptr && bert->types < 2 && config.task.next_sentence)
    problems.push_back(
        {"task.next_sentence", "this BERT has one type of text, and cannot tell two texts apart"});
  return problems;
}

TaskSection task_for(const Family& family) {
  TaskSection task;
  if (translates(family)) task.kind = TaskKind::translate;
  if (const auto* bert = std::get_if<BertShape>(&family)) {
    task.next_sentence = bert->head == BertHead::pretraining;
    task.kind = bert->head == BertHead::classify  ? TaskKind::classify
                : bert->head == BertHead::regress ? TaskKind::regress
                : bert->head == BertHead::span    ? TaskKind::span
                                                  : TaskKind::masked;
  }
  return task;
}

Family with_head(const Family& family, const RunConfig& config, const DataSizes& sizes) {
  if (std::holds_alternative<LstmShape>(family)) {
    LstmShape shape = std::get<LstmShape>(family);
    shape.sampled = config.task.sampled;
    return shape;
  }
  if (!std::holds_alternative<BertShape>(family)) return family;
  BertShape shape = std::get<BertShape>(family);
  shape.head = head_of_task(config.task);
  shape.labels = labels_of(config, sizes);
  return shape;
}

}  // namespace laconic
