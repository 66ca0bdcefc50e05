// What keeps [run], [data], [train], [evaluate], [checkpoint] and [report] from being followed.
#include <fmt/format.h>

#include "laconic/config/checker.hpp"
#include "laconic/config/grid_choice.hpp"

namespace laconic {

namespace {

void check_steps(Checker& c, const TrainSection& train) {
  c.at_least("train.steps", train.steps, 0);
  c.at_least("train.batch", train.batch, 1);
  // Their product, the position at the end, stays inside 64 bits.
  c.at_most("train.steps", train.steps, std::int64_t{1} << 38);
  c.at_most("train.batch", train.batch, 1 << 24);
  c.at_least("train.microbatch", train.microbatch, 0);
  c.in_range("train.clip", train.clip, 0, kAnyLarge);
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

// What asks about a whole step before any of it is used cannot be answered block by block.
void check_update(Checker& c, const RunConfig& config) {
  if (config.train.update != UpdateBy::block) return;
  const auto refuse = [&](bool holds, const std::string& what) {
    c.require(holds, "train.update", "update = \"block\" with " + what);
  };
  refuse(config.train.clip == 0,
         fmt::format("train.clip = {}: the norm of all gradients is known only when the first "
                     "blocks have been updated. Set train.clip = 0, or update = \"step\"",
                     config.train.clip));
  refuse(config.train.non_finite != NonFinite::skip,
         "train.non_finite = \"skip\": a step is known not to be finite when parts of it have "
         "been used, and the run ends at the next one. Set \"stop\", and checkpoint.every to "
         "what may be lost");
  refuse(
      config.local.steps == 0,
      fmt::format("local.steps = {}: ranks that step alone wait for nobody", config.local.steps));
  refuse(config.dp_gradient.method != GradientMethod::compressed_adam,
         "dp.gradient.method = \"compressed_adam\": what travels is a moment of all blocks, as "
         "yet. Use \"codec\" or \"power_sgd\"");
  refuse(config.steering.shadow == 0,
         fmt::format("steering.shadow = {}: gradients of a step are never all there to compare",
                     config.steering.shadow));
  refuse(!config.run.device.is_cuda(),
         "run.device = \"cuda\": nobody has tried it on a GPU as yet");
  refuse(!has_grid(config),
         fmt::format("mesh.tp = {}: the ranks of a grid fetch weights of the next block while "
                     "they compute one",
                     config.mesh.tp));
  refuse(config.mesh.pp == 1 || config.embedding_tied.fused,
         "embedding.tied.fused = false: parameters that stages share are summed twice, one after "
         "the other. Set it to true");
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

}  // namespace

void check_run(Checker& c, const RunConfig& config) {
  c.require(!config.run.folder.empty(), "run.folder", "folder is empty");
  c.at_least("run.seed", config.run.seed, 0);
  c.at_least("run.threads", config.run.threads, 0);
  c.at_most("run.threads", config.run.threads, 4096);
  c.at_least("run.memory", config.run.memory, 0);
}

void check_data(Checker& c, const RunConfig& config) {
  c.require(!config.data.train.empty(), "data.train",
            "no training data: give the prefix that `laconic prepare` wrote");
}

void check_train(Checker& c, const RunConfig& config) {
  check_steps(c, config.train);
  check_shares(c, config);
  check_shards(c, config);
  check_update(c, config);
}

void check_evaluate(Checker& c, const RunConfig& config) {
  c.at_least("evaluate.every", config.evaluate.every, 0);
  c.at_least("evaluate.samples", config.evaluate.samples, 0);
  c.at_least("evaluate.bleu_samples", config.evaluate.bleu_samples, 0);
  c.require(config.task.kind == TaskKind::translate ||
                config.evaluate.bleu_samples == EvaluateSection().bleu_samples,
            "evaluate.bleu_samples",
            fmt::format("bleu_samples = {} with task.kind = \"{}\": it is for \"translate\" alone",
                        config.evaluate.bleu_samples, name_in(kTaskKindNames, config.task.kind)));
  c.require(config.evaluate.every == 0 || !config.data.valid.empty(), "evaluate.every",
            fmt::format("every = {} but data.valid is empty", config.evaluate.every));
  check_validation(c, config);
}

void check_checkpoint(Checker& c, const RunConfig& config) {
  c.at_least("checkpoint.every", config.checkpoint.every, 0);
  c.at_least("checkpoint.keep", config.checkpoint.keep, 0);
  c.at_least("report.every", config.report.every, 1);
}

}  // namespace laconic
