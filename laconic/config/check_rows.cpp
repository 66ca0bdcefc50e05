// What keeps [embedding.rows] from being followed, whatever the model.
#include <fmt/format.h>

#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/checker.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/row_choice.hpp"

namespace laconic {

namespace {

// A step must change no other rows than those that it has read.
void check_row_optimiser(Checker& c, const RunConfig& config) {
  const OptimiserSection& o = config.optimiser;
  const std::string kind(name_in(kOptimiserKindNames, o.kind));
  const RowsOptimiser rows = config.embedding_rows.optimiser;
  const char* key = "embedding.rows.optimiser";
  const bool has_coupled_decay =
      (o.kind == OptimiserKind::adam || o.kind == OptimiserKind::sgd) && o.weight_decay > 0;
  if (rows == RowsOptimiser::same) {
    const bool is_plain = o.kind == OptimiserKind::sgd && o.momentum == 0 && o.weight_decay == 0;
    c.require(
        is_plain, key,
        fmt::format("optimiser = \"same\" with optimiser.kind = \"{}\", momentum = {} and "
                    "weight_decay = {}, which moves rows that no rank has read. Choose another "
                    "algorithm for rows by name (\"lazy_adam\", \"adagrad\" or \"sgd\"): one "
                    "that leaves such rows alone",
                    kind, o.momentum, o.weight_decay));
    return;
  }
  c.require(
      !has_coupled_decay, key,
      fmt::format("optimiser = \"{}\" with optimiser.kind = \"{}\" and weight_decay = {}, which "
                  "is a part of every row's gradient in every step: use adamw, whose decay can "
                  "be caught up, or no decay",
                  name_in(kRowsOptimiserNames, rows), kind, o.weight_decay));
  if (rows == RowsOptimiser::lazy_adam)
    c.require(
        o.kind != OptimiserKind::sgd && o.kind != OptimiserKind::lion, key,
        fmt::format("optimiser = \"lazy_adam\" keeps two moments, and optimiser.kind = \"{}\" "
                    "has one: use adagrad or sgd, or kind = \"adamw\"",
                    kind));
}

// Messages of rows have no memory: other rows are in the next one.
void check_row_codec(Checker& c, Dtype dtype, const char* leaf, const std::string& text) {
  const std::string key = fmt::format("embedding.rows.{}", leaf);
  std::optional<CodecSpec> codec;
  try {
    codec = parse_codec(text);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems()) c.require(false, key, p.what);
    return;
  }
  const auto* quantise = std::get_if<Quantise>(&*codec);
  c.require(std::holds_alternative<Raw>(*codec) || std::holds_alternative<Half>(*codec) ||
                std::holds_alternative<Huffman>(*codec) || quantise != nullptr,
            key,
            fmt::format("{} = \"{}\": what a message of rows loses is lost, since the next one has "
                        "other rows: use half, huffman or quantise",
                        leaf, text));
  for (const Problem& p : check(*codec, TensorSpec{dtype, {64, 64}})) c.require(false, key, p.what);
  if (quantise != nullptr)
    c.require(quantise->group != ScaleGroup::channel, key,
              fmt::format("{} = \"{}\": a scale for each column would be one of rows that have "
                          "nothing in common: use group=row",
                          leaf, text));
}

// What arrives early is shrunk there, by a step that has not been taken when it leaves: that is the
// same number only where nothing was rounded before.
void check_row_early(Checker& c, const RunConfig& config) {
  const double decay = row_decay(config);
  c.require(!config.embedding_rows.early || decay == 0 ||
                config.run.compute_type() == config.run.master_type(),
            "embedding.rows.early",
            fmt::format("early = true with run.precision = \"bfloat16\" and "
                        "optimiser.weight_decay = {}: rows that leave early would be rounded "
                        "before they shrink, the others after it. Set early = false, or no decay",
                        decay));
}

void check_row_clip(Checker& c, const RunConfig& config) {
  const EmbeddingRowsSection& rows = config.embedding_rows;
  c.require(
      rows.split != RowsSplit::on || rows.clip == RowsClip::dense || config.train.clip == 0,
      "embedding.rows.split",
      fmt::format("split = \"on\" with train.clip = {}: the norm of all gradients is not known "
                  "before those that come later. Set embedding.rows.clip = \"dense\", which "
                  "leaves tables out of the norm, or train.clip = 0, or split = \"off\"",
                  config.train.clip));
}

}  // namespace

void check_embedding_rows(Checker& c, const RunConfig& config) {
  const EmbeddingRowsSection& rows = config.embedding_rows;
  const char* key = "embedding.rows.method";
  const std::string method(name_in(kRowsMethodNames, rows.method));
  for (const auto& [leaf, text] : {std::pair{"codec", rows.codec}, {"gradient", rows.gradient}})
    c.require(
        rows.method == RowsMethod::alltoall || rows.method == RowsMethod::server || text == "raw",
        fmt::format("embedding.rows.{}", leaf),
        fmt::format("{} = \"{}\" with method = \"{}\": where tables are whole on every rank, all "
                    "must see the same gradients, and each has its own exactly. Use "
                    "\"alltoall\" or \"server\"",
                    leaf, text, method));
  c.require(
      !rows.early || (rows.method != RowsMethod::allreduce && rows.method != RowsMethod::allgather),
      "embedding.rows.early",
      fmt::format("early = true with method = \"{}\": tables that are whole on every rank "
                  "send no rows before a step",
                  method));
  if (rows.method == RowsMethod::allreduce) {
    c.require(rows.optimiser == RowsOptimiser::same, key,
              fmt::format("method = \"{}\" with embedding.rows.optimiser = \"{}\": a table that is "
                          "summed as a matrix has the run's algorithm",
                          method, name_in(kRowsOptimiserNames, rows.optimiser)));
    return;
  }
  const auto refuse = [&](bool holds, const std::string& what) {
    c.require(holds, key, fmt::format("method = \"{}\" with {}", method, what));
  };
  check_row_optimiser(c, config);
  check_row_clip(c, config);
  check_row_early(c, config);
  check_row_codec(c, config.run.compute_type(), "codec", rows.codec);
  check_row_codec(c, config.run.master_type(), "gradient", rows.gradient);
  refuse(!has_grid(config),
         fmt::format("mesh.tp = {}: a grid cuts tables in its own way", config.mesh.tp));
  refuse(config.local.steps == 0,
         fmt::format("local.steps = {}: ranks that step alone have no rows in common",
                     config.local.steps));
  refuse(config.dp_gradient.method != GradientMethod::compressed_adam,
         "dp.gradient.method = \"compressed_adam\": moments of rows do not travel");
  refuse(
      config.steering.shadow == 0,
      fmt::format("steering.shadow = {}: rows of tables have no shadow", config.steering.shadow));
  refuse(config.task.kind != TaskKind::translate || config.evaluate.bleu_samples == 0 ||
             config.data.valid.empty(),
         fmt::format(
             "evaluate.bleu_samples = {}: what is written word by word would look up rows that "
             "no rank has announced; set it to 0, and use laconic translate",
             config.evaluate.bleu_samples));
}

}  // namespace laconic
