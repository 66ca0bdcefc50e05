#include "laconic/config/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/stage_choice.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

class Checker {
 public:
  void at_least(const std::string& key, std::int64_t value, std::int64_t least) {
    require(value >= least, key, fmt::format("{} = {} is below {}", leaf(key), value, least));
  }
  void at_most(const std::string& key, std::int64_t value, std::int64_t most) {
    require(value <= most, key, fmt::format("{} = {} is above {}", leaf(key), value, most));
  }
  // Also refuses NaN.
  void in_range(const std::string& key, double value, double least, double below) {
    require(value >= least && value < below, key,
            fmt::format("{} = {} is not in [{}, {})", leaf(key), value, least, below));
  }
  void require(bool holds, const std::string& key, std::string what) {
    if (!holds) problems.push_back({key, std::move(what)});
  }

  Problems problems;

 private:
  static std::string leaf(const std::string& key) { return key.substr(key.rfind('.') + 1); }
};

constexpr std::int64_t kMostRanks = 4096;  // along one axis
constexpr double kAnyLarge = std::numeric_limits<double>::infinity();

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
      {"hidden", m.hidden != plain.hidden, {ModelKind::llama, ModelKind::bert, ModelKind::seq2seq}},
      {"labels", m.labels != plain.labels, {ModelKind::bert}},
      {"decoder_layers", m.decoder_layers != plain.decoder_layers, seq2seq},
      {"norm", m.norm != plain.norm, seq2seq},
      {"positions", m.positions != plain.positions, seq2seq},
      {"sharing", m.sharing != plain.sharing, seq2seq}};
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
  const bool has_sizes = std::ranges::min(positive) >= 1 && std::ranges::min(given) >= 0 &&
                         std::max(std::ranges::max(positive), std::ranges::max(given)) <= 1 << 24;
  if (has_sizes) {
    if (model.kind == ModelKind::llama && model.head_width == 0)
      c.require(model.width % model.heads == 0, "model.heads",
                fmt::format("heads = {} does not divide width = {}, and there is no head_width",
                            model.heads, model.width));
    const Family family = family_of(config, {.vocabulary = 1, .labels = 2});
    append(c.problems, check(family));
    if (model.start.empty()) append(c.problems, check_task(family, config));
  }
  c.in_range("model.dropout", model.dropout, 0, 1);
  if (!model.start.empty()) return;  // a folder decides, and has its own kind
  refuse_keys_of_others(c, model);
}

void check_train(Checker& c, const TrainSection& train) {
  c.at_least("train.steps", train.steps, 0);
  c.at_least("train.batch", train.batch, 1);
  // Their product, the position at the end, stays inside 64 bits.
  c.at_most("train.steps", train.steps, std::int64_t{1} << 38);
  c.at_most("train.batch", train.batch, 1 << 24);
  c.at_least("train.microbatch", train.microbatch, 0);
  c.in_range("train.clip", train.clip, 0, kAnyLarge);
}

// The stable part of a wsd schedule may be empty, but the three parts must fit.
void check_decay(Checker& c, const OptimiserSection& o, std::int64_t end) {
  const bool is_share = o.decay_length > 0 && o.decay_length < 1;
  c.require(
      is_share || (o.decay_length >= 1 && o.decay_length <= 1e15 &&
                   o.decay_length == std::floor(o.decay_length)),
      "optimiser.decay_length",
      fmt::format("decay_length = {} is neither a share between 0 and 1 nor a whole number of "
                  "steps",
                  o.decay_length));
  if (o.schedule != LearningRateShape::wsd || is_share || !(o.decay_length >= 1) || end == 0)
    return;
  c.require(o.decay_length <= static_cast<double>(end), "optimiser.decay_length",
            fmt::format("decay_length = {} is longer than the schedule of {} steps", o.decay_length,
                        end));
}

// What belongs to one kind only is looked at for that kind, so that --set optimiser.kind=... works.
void check_kind(Checker& c, const RunConfig& config) {
  const OptimiserSection& o = config.optimiser;
  c.in_range("optimiser.momentum", o.momentum, 0, 1);
  c.in_range("optimiser.muon_momentum", o.muon_momentum, 0, 1);
  c.in_range("optimiser.muon_lr", o.muon_lr, 0, kAnyLarge);
  const std::string_view name = name_in(kOptimiserKindNames, o.kind);
  c.require(o.kind != OptimiserKind::sgd || !o.nesterov || o.momentum > 0, "optimiser.nesterov",
            "nesterov = true with momentum = 0: there is no momentum to look along");
  c.require(o.kind != OptimiserKind::muon || o.muon_lr == 0 || o.lr > 0, "optimiser.muon_lr",
            fmt::format("muon_lr = {} with lr = 0: it follows the schedule of lr, which says "
                        "nothing then",
                        o.muon_lr));
  c.require(config.dp_gradient.method != GradientMethod::compressed_adam ||
                o.kind == OptimiserKind::adamw,
            "dp.gradient.method",
            fmt::format("compressed_adam sends the first moment of adamw, and optimiser.kind = "
                        "\"{}\" does not step along that: use method = \"codec\", or adamw",
                        name));
}

void check_optimiser(Checker& c, const OptimiserSection& optimiser, const TrainSection& train) {
  c.in_range("optimiser.lr", optimiser.lr, 0, kAnyLarge);
  c.in_range("optimiser.min_lr", optimiser.min_lr, 0, kAnyLarge);
  c.require(optimiser.min_lr <= optimiser.lr || optimiser.schedule == LearningRateShape::constant,
            "optimiser.min_lr",
            fmt::format("min_lr = {} is above lr = {}", optimiser.min_lr, optimiser.lr));
  c.at_least("optimiser.warmup", optimiser.warmup.steps, 0);
  c.in_range("optimiser.warmup", optimiser.warmup.share, 0, 1);
  c.at_least("optimiser.decay_steps", optimiser.decay_steps, 0);
  check_decay(c, optimiser, optimiser.decay_steps > 0 ? optimiser.decay_steps : train.steps);
  c.in_range("optimiser.beta1", optimiser.beta1, 0, 1);
  c.in_range("optimiser.beta2", optimiser.beta2, 0, 1);
  c.require(optimiser.epsilon > 0 && std::isfinite(optimiser.epsilon), "optimiser.epsilon",
            fmt::format("epsilon = {} is not a positive number", optimiser.epsilon));
  c.in_range("optimiser.weight_decay", optimiser.weight_decay, 0, kAnyLarge);
}

// How a batch is dealt out to ranks and microbatches.
void check_shares(Checker& c, const RunConfig& config) {
  const std::int64_t batch = config.train.batch, dp = config.mesh.dp;
  c.at_least("mesh.dp", dp, 1);
  c.at_most("mesh.dp", dp, kMostRanks);
  if (batch < 1 || dp < 1) return;
  c.require(batch % dp == 0, "mesh.dp",
            fmt::format("dp = {} does not divide train.batch = {}", dp, batch));
  const std::int64_t micro = config.train.microbatch;
  if (micro < 1 || batch % dp != 0) return;
  c.require(config.local_batch() % micro == 0, "train.microbatch",
            dp == 1 ? fmt::format("microbatch = {} does not divide batch = {}", micro, batch)
                    : fmt::format("microbatch = {} does not divide the {} samples of a rank "
                                  "(train.batch = {}, mesh.dp = {})",
                                  micro, config.local_batch(), batch, dp));
}

// Whole shards must come to one rank, and an equal share of every batch from each.
void check_shards(Checker& c, const RunConfig& config) {
  const std::int64_t shards = config.data.shards, dp = config.mesh.dp, batch = config.train.batch;
  c.at_least("data.shards", shards, 0);
  if (shards < 1 || dp < 1 || batch < 1) return;
  c.require(batch % shards == 0, "data.shards",
            fmt::format("shards = {} does not divide train.batch = {}", shards, batch));
  c.require(!config.remembers_samples() || shards % dp == 0, "data.shards",
            fmt::format("shards = {} is not a multiple of mesh.dp = {}: samples that links "
                        "remember would come to other ranks",
                        shards, dp));
}

// Nothing where the text is no codec, which is then reported.
std::optional<CodecSpec> check_codec(Checker& c, const std::string& key, const std::string& text) {
  try {
    return parse_codec(text);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems()) c.require(false, key, p.what);
    return std::nullopt;
  }
}

bool is_learned(const std::optional<CodecSpec>& codec) {
  return codec && std::holds_alternative<AutoEncoder>(*codec);
}

// What the links of activations and of gradients have in common.
template <class Section>
void check_boundary(Checker& c, const std::string& section, const Section& link) {
  for (const auto& [leaf, text] : {std::pair{"codec", link.codec}, {"first", link.first}}) {
    const std::string key = fmt::format("{}.{}", section, leaf);
    c.require(!is_learned(check_codec(c, key, text)), key,
              "auto_encoder needs maps that both ends learn, and stage boundaries have none: use "
              "quantise");
  }
  c.at_least(section + ".budget", link.budget, 0);
  c.require(!link.store.empty(), section + ".store", "store is empty: write ram, or a folder");
  c.require(link.memory != LinkMemory::delta || link.store == kInRam || link.budget > 0,
            section + ".budget",
            fmt::format("budget = {}: references in the folder {} need a limit in bytes",
                        link.budget, link.store));
}

void check_tied(Checker& c, const EmbeddingTiedSection& tied) {
  const char* key = "embedding.tied.codec";
  const std::optional<CodecSpec> codec = check_codec(c, key, tied.codec);
  if (!codec) return;
  c.require(!is_learned(codec) && !std::holds_alternative<LowRank>(*codec), key,
            fmt::format("{} encodes matrices, and sums are made of flat pieces: use quantise",
                        name_of(*codec)));
  const auto* quantise = std::get_if<Quantise>(&*codec);
  if (quantise != nullptr)
    c.require(quantise->group == ScaleGroup::block, key,
              fmt::format("group={} needs rows and columns, and sums are made of flat pieces: use "
                          "group=block",
                          name_of(quantise->group)));
}

constexpr std::string_view kScheduleFile = "file:";

void check_schedule(Checker& c, const PipelineSection& pipeline) {
  const std::string& schedule = pipeline.schedule;
  c.at_least("pipeline.chunks", pipeline.chunks, 1);
  c.at_most("pipeline.chunks", pipeline.chunks, kMostRanks);
  if (schedule.starts_with(kScheduleFile)) {
    c.require(schedule != kScheduleFile, "pipeline.schedule", "file: has no path behind it");
    return;
  }
  try {
    const ScheduleKind kind = parse_schedule_kind(schedule);
    if (pipeline.chunks < 1) return;
    if (kind == ScheduleKind::interleaved)
      c.require(pipeline.chunks >= 2, "pipeline.chunks",
                fmt::format("chunks = {}: interleaved needs at least 2", pipeline.chunks));
    else if (kind == ScheduleKind::zb_v)
      c.require(pipeline.chunks == 2, "pipeline.chunks",
                fmt::format("chunks = {}: zb_v needs exactly 2", pipeline.chunks));
    else
      c.require(pipeline.chunks == 1, "pipeline.chunks",
                fmt::format("chunks = {}: {} has 1 stage on each rank, only interleaved and zb_v "
                            "have more",
                            pipeline.chunks, schedule));
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems())
      c.require(false, "pipeline.schedule", p.what + "; or file:PATH");
  }
}

// Interleaved takes microbatches in rounds, one for each rank.
void check_rounds(Checker& c, const RunConfig& config) {
  const std::int64_t pp = config.mesh.pp, dp = config.mesh.dp, batch = config.train.batch;
  if (config.pipeline.schedule != name_of(ScheduleKind::interleaved) || pp < 1 || dp < 1 ||
      batch < dp)
    return;
  const std::int64_t local = config.local_batch(), size = config.microbatch_size();
  if (batch % dp != 0 || size < 1 || local % size != 0) return;
  c.require(config.microbatches() % pp == 0, "pipeline.schedule",
            fmt::format("interleaved needs a number of microbatches that mesh.pp = {} divides, and "
                        "the {} samples of a rank in microbatches of {} make {}",
                        pp, local, size, config.microbatches()));
}

void check_pipeline(Checker& c, const RunConfig& config) {
  c.at_least("mesh.pp", config.mesh.pp, 1);
  c.at_most("mesh.pp", config.mesh.pp, kMostRanks);
  check_schedule(c, config.pipeline);
  check_rounds(c, config);
  check_boundary(c, "pp.activation", config.pp_activation);
  c.at_least("pp.activation.hash_every", config.pp_activation.hash_every, 1);
  c.at_most("pp.activation.hash_every", config.pp_activation.hash_every, 1 << 30);
  check_boundary(c, "pp.gradient", config.pp_gradient);
  check_tied(c, config.embedding_tied);
}

// What needs evaluations to go by.
void check_validation(Checker& c, const RunConfig& config) {
  const EvaluateSection& evaluate = config.evaluate;
  c.at_least("evaluate.patience", evaluate.patience, 0);
  c.in_range("evaluate.min_improvement", evaluate.min_improvement, 0, kAnyLarge);
  c.require(evaluate.patience <= 0 || evaluate.every > 0, "evaluate.patience",
            fmt::format("patience = {} with every = 0: there is one evaluation, at the end, and "
                        "nothing to stop",
                        evaluate.patience));
  c.require(!config.checkpoint.best || !config.data.valid.empty(), "checkpoint.best",
            "best = true but data.valid is empty: nothing says which checkpoint is the best");
}

void check_network(Checker& c, const RunConfig& config) {
  const NetworkSection& network = config.network;
  c.at_least("network.port", network.port, 0);
  c.at_most("network.port", network.port, 65535);
  c.in_range("network.deadline", network.deadline, 0.1, 86401);
  c.at_least("network.segment", network.segment, 1024);
  c.at_most("network.segment", network.segment, 64 << 20);
  const DpGradientSection& gradient = config.dp_gradient;
  check_codec(c, "dp.gradient.codec", gradient.codec);
  if (!gradient.down.empty()) check_codec(c, "dp.gradient.down", gradient.down);
  c.at_least("dp.gradient.warmup", gradient.warmup, 0);
  c.at_least("dp.gradient.rank", gradient.rank, 1);
  c.in_range("dp.gradient.min_ratio", gradient.min_ratio, 0, kAnyLarge);
  for (const Problem& p : check_stage_choice(gradient.stages, config.mesh.pp))
    c.require(false, "dp.gradient.stages", p.what);
  if (gradient.method == GradientMethod::compressed_adam)
    c.require(gradient.warmup > 0, "dp.gradient.warmup",
              "compressed_adam freezes the second moment after warm-up, which must therefore have "
              "at least one step; a tenth of train.steps is usual");
}

void check_local(Checker& c, const RunConfig& config) {
  const LocalSection& local = config.local;
  c.at_least("local.steps", local.steps, 0);
  c.in_range("local.outer_lr", local.outer_lr, 0, kAnyLarge);
  c.in_range("local.outer_momentum", local.outer_momentum, 0, 1);
  if (local.steps < 1) return;
  c.require(config.mesh.dp > 1, "local.steps",
            fmt::format("steps = {} with mesh.dp = 1: there is nobody to agree with", local.steps));
  c.require(config.dp_gradient.method == GradientMethod::codec, "local.steps",
            fmt::format("local updates send the change of the parameters, not what "
                        "dp.gradient.method = \"{}\" sends: set it to \"codec\"",
                        name_in(kGradientMethodNames, config.dp_gradient.method)));
  for (const auto& [key, every] : {std::pair{"checkpoint.every", config.checkpoint.every},
                                   {"train.steps", config.train.steps},
                                   {"evaluate.every", config.evaluate.every}})
    c.require(every % local.steps == 0, key,
              fmt::format("{} = {} is not a multiple of local.steps = {}: only then do all ranks "
                          "have the same model",
                          key, every, local.steps));
}

// What is asked, and whether the model answers it.
void check_task(Checker& c, const RunConfig& config) {
  const TaskSection& t = config.task;
  const std::string kind(name_in(kTaskKindNames, t.kind));
  c.require(t.mask_share > 0 && t.mask_share <= 1, "task.mask_share",
            fmt::format("mask_share = {} is not in (0, 1]", t.mask_share));
  c.in_range("task.label_smoothing", t.label_smoothing, 0, 1);
  const bool is_masked = t.kind == TaskKind::masked;
  c.require(
      is_masked || !t.whole_words, "task.whole_words",
      fmt::format("whole_words = true with kind = \"{}\": only \"masked\" hides words", kind));
  c.require(
      is_masked || !t.next_sentence, "task.next_sentence",
      fmt::format("next_sentence = true with kind = \"{}\": only \"masked\" has sentence pairs",
                  kind));
  c.require(is_masked || t.masks == MaskDraws::epoch, "task.masks",
            fmt::format("masks = \"sample\" with kind = \"{}\": only \"masked\" has masks", kind));
  c.require(t.kind == TaskKind::translate || t.label_smoothing == 0, "task.label_smoothing",
            fmt::format("label_smoothing = {} with kind = \"{}\": it is for \"translate\" alone",
                        t.label_smoothing, kind));
  if (t.pad != Padding::longest) return;
  c.require(
      config.model.dropout == 0, "task.pad",
      fmt::format("pad = \"longest\" with model.dropout = {}: masks of dropout are drawn by an "
                  "element's place in the whole sample",
                  config.model.dropout));
  c.require(t.kind != TaskKind::causal, "task.pad",
            "pad = \"longest\" with kind = \"causal\": its samples are not padded");
  for (const auto& [key, memory] : {std::pair{"pp.activation.memory", config.pp_activation.memory},
                                    {"pp.gradient.memory", config.pp_gradient.memory}})
    c.require(memory != LinkMemory::delta, "task.pad",
              fmt::format("pad = \"longest\" with {} = \"delta\": references of a sample must have "
                          "the same length at every visit",
                          key));
  c.require(config.mesh.pp == 1, "task.pad",
            fmt::format("pad = \"longest\" with mesh.pp = {}: what crosses between stages has the "
                        "length of the context",
                        config.mesh.pp));
}

// What a guard can look at, and a shadow be compared with.
void check_guard(Checker& c, const RunConfig& config) {
  const SteeringSection& s = config.steering;
  const std::int64_t local = config.local.steps;
  if (s.guard != GuardMode::off && local > 0)
    c.require(s.every % local == 0, "steering.every",
              fmt::format("every = {} is not a multiple of local.steps = {}: only then do sums "
                          "of changes travel in steps that are looked at",
                          s.every, local));
  if (s.shadow == 0) return;
  c.require(
      local == 0, "steering.shadow",
      fmt::format("shadow = {} with local.steps = {}: every replica follows its own gradient, "
                  "and there is no common one to compare",
                  s.shadow, local));
  c.require(config.dp_gradient.method != GradientMethod::compressed_adam, "steering.shadow",
            fmt::format("shadow = {} with dp.gradient.method = \"compressed_adam\": after warm-up "
                        "moments travel, and there is no common gradient to compare",
                        s.shadow));
}

void check_steering(Checker& c, const RunConfig& config) {
  const SteeringSection& steering = config.steering;
  c.at_least("steering.after", steering.after, 2);
  c.at_least("steering.every", steering.every, 1);
  c.at_least("steering.shadow", steering.shadow, 0);
  c.at_least("steering.patience", steering.patience, 1);
  c.in_range("steering.min_cosine", steering.min_cosine, -1, 1);
  c.in_range("steering.max_error", steering.max_error, 0, kAnyLarge);
  c.in_range("steering.max_residual", steering.max_residual, 0, kAnyLarge);
  if (steering.every >= 1 && config.local.steps >= 0) check_guard(c, config);
}

}  // namespace

Mesh mesh_of(const RunConfig& config) {
  return {.pp = static_cast<int>(config.mesh.pp), .dp = static_cast<int>(config.mesh.dp)};
}

bool has_ends_apart(const RunConfig& config) {
  return config.mesh.pp > 1 && config.pipeline.schedule != name_of(ScheduleKind::zb_v);
}

namespace {

std::int64_t schedule_steps(const OptimiserSection& optimiser, std::int64_t steps) {
  return optimiser.decay_steps > 0 ? optimiser.decay_steps : steps;
}

}  // namespace

std::int64_t warmup_steps(const OptimiserSection& optimiser, std::int64_t steps) {
  const std::int64_t all = schedule_steps(optimiser, steps);
  return std::min(optimiser.warmup.of(all), all);
}

std::vector<std::string> warnings_of(const RunConfig& config) {
  const std::int64_t all = schedule_steps(config.optimiser, config.train.steps);
  const std::int64_t asked = config.optimiser.warmup.of(all);
  if (asked <= all || config.train.steps == 0) return {};
  return {fmt::format(
      "optimiser.warmup = {} does not fit into the schedule of {} steps: shortened to {}; a share "
      "such as 0.1 follows the schedule",
      asked, all, all)};
}

Problems check_stages(const RunConfig& config, std::int64_t layers) {
  const std::int64_t pp = config.mesh.pp, chunks = config.pipeline.chunks;
  Checker c;
  if (layers < 1 || pp < 1 || pp > kMostRanks || chunks < 1 || chunks > kMostRanks) return {};
  c.require(config.stages() <= layers + 2, "mesh.pp",
            fmt::format("pp = {} with pipeline.chunks = {} makes {} stages of at least one block, "
                        "and the model has {}: {} layers, an embedding and a head",
                        pp, chunks, config.stages(), layers + 2, layers));
  const std::string& text = config.pipeline.split;
  if (text == kSplitAuto || text == kSplitMeasured) return c.problems;
  try {
    for (const Problem& p :
         check_split(parse_split(text), layers, static_cast<int>(config.stages())))
      c.require(false, "pipeline.split", p.what);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems())
      c.require(false, "pipeline.split", p.what + "; or auto, or measured");
  }
  return c.problems;
}

Problems check(const RunConfig& config) {
  Checker c;
  c.require(!config.run.folder.empty(), "run.folder", "folder is empty");
  c.at_least("run.seed", config.run.seed, 0);
  c.at_least("run.threads", config.run.threads, 0);
  c.at_most("run.threads", config.run.threads, 4096);
  c.at_least("run.memory", config.run.memory, 0);
  check_model(c, config);
  c.require(!config.data.train.empty(), "data.train",
            "no training data: give the prefix that `laconic prepare` wrote");
  check_task(c, config);
  check_train(c, config.train);
  check_shares(c, config);
  check_shards(c, config);
  check_pipeline(c, config);
  if (config.model.start.empty())
    append(c.problems, check_stages(config, layers_between(config.model)));
  check_optimiser(c, config.optimiser, config.train);
  check_kind(c, config);
  c.at_least("evaluate.every", config.evaluate.every, 0);
  c.at_least("evaluate.samples", config.evaluate.samples, 0);
  c.require(config.evaluate.every == 0 || !config.data.valid.empty(), "evaluate.every",
            fmt::format("every = {} but data.valid is empty", config.evaluate.every));
  check_validation(c, config);
  c.at_least("checkpoint.every", config.checkpoint.every, 0);
  c.at_least("checkpoint.keep", config.checkpoint.keep, 0);
  c.at_least("report.every", config.report.every, 1);
  check_network(c, config);
  check_local(c, config);
  check_steering(c, config);
  return c.problems;
}

}  // namespace laconic
