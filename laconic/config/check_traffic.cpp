// What keeps [pp.activation], [pp.gradient], [embedding.tied], [dp.gradient] and [network] from
// being followed.
#include <fmt/format.h>

#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/checker.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/place_choice.hpp"
#include "laconic/config/stage_choice.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {

namespace {

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
void check_boundary(Checker& c, const std::string& section, const Section& link,
                    std::int64_t boundaries) {
  for (const auto& [leaf, text] : {std::pair{"codec", link.codec}, {"first", link.first}}) {
    const std::string key = fmt::format("{}.{}", section, leaf);
    c.require(!is_learned(check_codec(c, key, text)) || key == "pp.activation.codec", key,
              "auto_encoder is for pp.activation.codec, whose gradients are then those of codes; "
              "here use quantise");
  }
  for (const Problem& p : check_places(link.boundaries, boundaries, kBoundaryWords))
    c.require(false, section + ".boundaries", p.what);
  c.at_least(section + ".budget", link.budget, 0);
  c.at_least(section + ".device_memory", link.device_memory, 0);
  c.require(!link.store.empty(), section + ".store", "store is empty: write ram, or a folder");
  c.require(link.memory != LinkMemory::delta || link.store == kInRam || link.budget > 0,
            section + ".budget",
            fmt::format("budget = {}: references in the folder {} need a limit in bytes",
                        link.budget, link.store));
}

// Maps are parameters of the model, so it must be known where they are before anything is counted.
void check_boundary_codes(Checker& c, const RunConfig& config) {
  if (!has_boundary_codes(config)) return;
  const std::string& codec = config.pp_activation.codec;
  const ModelSection& model = config.model;
  c.require(model.project_after.empty(), "model.project_after",
            fmt::format("\"{}\" with pp.activation.codec = \"{}\": one of them says where "
                        "boundaries are projected",
                        model.project_after, codec));
  c.require(!model.start.empty() || model.kind == ModelKind::gpt ||
                model.kind == ModelKind::llama || model.kind == ModelKind::bert,
            "pp.activation.codec",
            fmt::format("auto_encoder with a model of kind \"{}\", whose boundaries cannot be "
                        "projected: use quantise",
                        name_in(kModelKindNames, model.kind)));
  c.require(
      config.pp_activation.memory != LinkMemory::feedback, "pp.activation.memory",
      "slot_feedback with auto_encoder: the sender has no decoder, so it does not know what was "
      "lost; use none");
  c.require(config.pp_activation.start != CodeBegin::pca || config.local.steps == 0,
            "pp.activation.start",
            fmt::format("start = \"pca\" with local.steps = {}: rounds are counted from the maps "
                        "that replicas began with, which are chosen before any activation is "
                        "known: use orthogonal",
                        config.local.steps));
  const std::int64_t stages = config.stages();
  const std::string& split = config.pipeline.split;
  if (config.mesh.pp < 2 || stages < 2) return;
  std::vector<std::string> equal;
  for (std::int64_t s = 0; s < stages; ++s)
    equal.push_back(std::to_string(model.layers * (s + 1) / stages - model.layers * s / stages));
  c.require(split != kSplitAuto && split != kSplitMeasured, "pipeline.split",
            fmt::format("\"{}\" with pp.activation.codec = \"{}\": its maps are parameters of the "
                        "model, so it must be known where stages end: write their layers, as "
                        "\"{}\"",
                        split, codec, join(equal, ",")));
}

bool is_transform(const std::optional<CodecSpec>& codec) {
  return codec && std::holds_alternative<Transform>(*codec);
}

// Only two ends that see the same messages learn the same directions.
void refuse_transform(Checker& c, const std::string& key, const std::optional<CodecSpec>& codec) {
  c.require(!is_transform(codec), key,
            "transform needs a basis that the two ends of a stage boundary learn together: use "
            "quantise");
}

void check_tied(Checker& c, const EmbeddingTiedSection& tied) {
  const char* key = "embedding.tied.codec";
  c.at_least("embedding.tied.rank", tied.rank, 1);
  const std::optional<CodecSpec> codec = check_codec(c, key, tied.codec);
  if (!codec) return;
  refuse_transform(c, key, codec);
  c.require(!is_learned(codec) && !std::holds_alternative<LowRank>(*codec), key,
            fmt::format("{} encodes matrices, and sums are made of flat pieces: use quantise{}",
                        name_of(*codec),
                        is_learned(codec) ? "" : ", or embedding.tied.method = \"power_sgd\""));
  const auto* quantise = std::get_if<Quantise>(&*codec);
  if (quantise != nullptr)
    c.require(quantise->group == ScaleGroup::block, key,
              fmt::format("group={} needs rows and columns, and sums are made of flat pieces: use "
                          "group=block",
                          name_of(quantise->group)));
}

// What a class of messages in a tensor grid can have.
void check_grid_codec(Checker& c, const std::string& key, const std::string& text, Dtype dtype) {
  const std::optional<CodecSpec> codec = check_codec(c, key, text);
  if (!codec) return;
  if (is_learned(codec) && key != "tp.activation.codec")
    c.require(
        false, key,
        fmt::format("auto_encoder's maps are learned by the gradient of what is decoded, and "
                    "{} have none: use it for tp.activation, whose gradients are then codes, "
                    "too; here use quantise",
                    key == "tp.gradient.codec" ? "gradients" : "weights and their gradients"));
  refuse_transform(c, key, codec);
  if (!is_lossy(*codec) || is_learned(codec)) return;
  for (const Problem& p : check(*codec, TensorSpec{dtype, {64, 64}})) c.require(false, key, p.what);
}

void check_masked(Checker& c, const TpActivationSection& activation) {
  if (!activation.masked) return;
  try {
    const CodecSpec codec = parse_codec(activation.codec);
    c.require(is_sparse(codec), "tp.activation.masked",
              fmt::format("masked = true with codec = \"{}\": {} sends something of every element, "
                          "so there is nothing to mask: use top_k or random_k",
                          activation.codec, name_of(codec)));
  } catch (const ConfigError&) {
    // said of the codec itself
  }
}

// Gathered, a sum moves g - 1 whole buffers; what for must be there.
void check_sum(Checker& c, const std::string& section, SumForm sum, const std::string& text) {
  if (sum != SumForm::gathered) return;
  const auto refuse = [&](bool holds, const std::string& what) {
    c.require(holds, section + ".sum",
              fmt::format("sum = \"gathered\" with codec = \"{}\": {}: use two-step", text, what));
  };
  try {
    const CodecSpec codec = parse_codec(text);  // of sums, which travel in float32
    const bool is_exact = !is_lossy(codec) || codec == CodecSpec(Huffman{.kind = Dtype::f32});
    refuse(!is_exact, "nothing is rounded, so it would only move more");
    refuse(!is_lossy(codec) || !(is_summable(codec) || is_learned(codec)),
           fmt::format("what {} sends is added on the way, which moves less", name_of(codec)));
  } catch (const ConfigError&) {
    // said of the codec itself
  }
}

void check_tensor_traffic(Checker& c, const RunConfig& config) {
  const Dtype compute = config.run.compute_type();
  check_grid_codec(c, "tp.activation.codec", config.tp_activation.codec, compute);
  check_masked(c, config.tp_activation);
  check_sum(c, "tp.activation", config.tp_activation.sum, config.tp_activation.codec);
  check_sum(c, "tp.gradient", config.tp_gradient.sum, config.tp_gradient.codec);
  c.require(
      config.tp_activation.start != CodeBegin::pca || config.local.steps == 0,
      "tp.activation.start",
      fmt::format("start = \"pca\" with local.steps = {}: rounds are counted from the maps "
                  "that replicas began with, which are chosen before any activation is known: "
                  "use orthogonal",
                  config.local.steps));
  check_grid_codec(c, "tp.gradient.codec", config.tp_gradient.codec, compute);
  check_grid_codec(c, "tp.weight.codec", config.tp_weight.codec, compute);
  check_grid_codec(c, "tp.weight.gradient", config.tp_weight.gradient, config.run.master_type());
  for (const auto& [key, text] : {std::pair{"tp.activation.layers", config.tp_activation.layers},
                                  {"tp.gradient.layers", config.tp_gradient.layers},
                                  {"tp.weight.layers", config.tp_weight.layers}})
    if (!config.model.start.empty())  // otherwise check_grid() says it, with the model's layers
      for (const Problem& p : check_places(text, 0)) c.require(false, key, p.what);
}

// The sum of what stages share alone.
void check_tied_late(Checker& c, const RunConfig& config) {
  const EmbeddingTiedSection& tied = config.embedding_tied;
  c.at_least("embedding.tied.late", tied.late, 0);
  c.at_most("embedding.tied.late", tied.late, 1);
  c.at_least("embedding.tied.late_after", tied.late_after, 0);
  if (tied.late < 1) return;
  const auto refuse = [&](bool holds, const std::string& what) {
    c.require(holds, "embedding.tied.late", fmt::format("late = {} with {}", tied.late, what));
  };
  refuse(tied.fused,
         "fused = false: sums of stages are made of sums of replicas, which are not there yet. "
         "Set it to true");
  refuse(
      config.dp_gradient.method != GradientMethod::compressed_adam,
      "dp.gradient.method = \"compressed_adam\": moments are formed when the norm of the step is "
      "known. Use \"codec\" or \"power_sgd\"");
  refuse(config.local.steps == 0,
         fmt::format("local.steps = {}: stages agree on gradients in every inner step",
                     config.local.steps));
  refuse(config.train.update == UpdateBy::step,
         "train.update = \"block\": forward of the block that looks tokens up waits for the sum "
         "already. Set it to \"step\"");
  refuse(config.steering.shadow == 0,
         fmt::format("steering.shadow = {}: a gradient that is used is that of another step",
                     config.steering.shadow));
  refuse(config.embedding_rows.method == RowsMethod::allreduce,
         "embedding.rows.method: rows of tables are exchanged in their own step. Use "
         "\"allreduce\"");
}

// What asks about a step's own gradient cannot have the one before.
void check_late(Checker& c, const RunConfig& config) {
  const DpGradientSection& gradient = config.dp_gradient;
  c.at_least("dp.gradient.late", gradient.late, 0);
  c.at_most("dp.gradient.late", gradient.late, 1);
  c.at_least("dp.gradient.late_after", gradient.late_after, 0);
  if (gradient.late < 1) return;
  const auto refuse = [&](bool holds, const std::string& what) {
    c.require(holds, "dp.gradient.late", fmt::format("late = {} with {}", gradient.late, what));
  };
  refuse(config.mesh.dp > 1, "mesh.dp = 1: there are no sums to wait for");
  refuse(gradient.method != GradientMethod::compressed_adam,
         "method = \"compressed_adam\": moments are formed when the norm of the step is known. Use "
         "\"codec\" or \"power_sgd\"");
  refuse(config.local.steps == 0,
         fmt::format("local.steps = {}: changes travel late by local.overlap", config.local.steps));
  refuse(config.train.update == UpdateBy::step,
         "train.update = \"block\": forward waits for nothing. Set it to \"step\"");
  refuse(config.steering.shadow == 0,
         fmt::format("steering.shadow = {}: the gradient that is used is that of another step",
                     config.steering.shadow));
  refuse(config.embedding_rows.method == RowsMethod::allreduce,
         "embedding.rows.method: rows of tables are exchanged in their own step, and a norm would "
         "be of two. Use \"allreduce\"");
  refuse(config.mesh.pp == 1 || config.embedding_tied.fused,
         "embedding.tied.fused = false: sums of stages are made of sums of replicas, which are not "
         "there yet. Set it to true");
}

}  // namespace

void check_boundaries(Checker& c, const RunConfig& config) {
  check_tensor_traffic(c, config);
  check_boundary_codes(c, config);
  check_boundary(c, "pp.activation", config.pp_activation, config.stages() - 1);
  c.at_least("pp.activation.hash_every", config.pp_activation.hash_every, 1);
  c.at_most("pp.activation.hash_every", config.pp_activation.hash_every, 1 << 30);
  check_boundary(c, "pp.gradient", config.pp_gradient, config.stages() - 1);
  check_tied(c, config.embedding_tied);
  try {
    c.require(
        config.pp_gradient.when == When::always ||
            !is_transform(parse_codec(config.pp_gradient.codec)),
        "pp.gradient.codec",
        fmt::format("transform with when = \"{}\": both ends learn from the first messages of "
                    "a step, which then travel raw: use always",
                    name_of(config.pp_gradient.when)));
  } catch (const ConfigError&) {
    // said of the codec itself
  }
}

void check_network(Checker& c, const RunConfig& config) {
  const NetworkSection& network = config.network;
  c.at_least("network.port", network.port, 0);
  c.at_most("network.port", network.port, 65535);
  c.in_range("network.deadline", network.deadline, 0.1, 86401);
  c.at_least("network.segment", network.segment, 1024);
  c.at_most("network.segment", network.segment, 64 << 20);
  check_late(c, config);
  check_tied_late(c, config);
  const DpGradientSection& gradient = config.dp_gradient;
  check_codec(c, "dp.gradient.codec", gradient.codec);
  if (!gradient.down.empty()) check_codec(c, "dp.gradient.down", gradient.down);
  if (!config.local.warmup_codec.empty())
    check_codec(c, "local.warmup_codec", config.local.warmup_codec);
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

}  // namespace laconic
