#include "laconic/config/run_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace laconic {

namespace {

class Checker {
 public:
  void at_least(const char* key, std::int64_t value, std::int64_t least) {
    require(value >= least, key, fmt::format("{} = {} is below {}", leaf(key), value, least));
  }
  void at_most(const char* key, std::int64_t value, std::int64_t most) {
    require(value <= most, key, fmt::format("{} = {} is above {}", leaf(key), value, most));
  }
  // Also refuses NaN.
  void in_range(const char* key, double value, double least, double below) {
    require(value >= least && value < below, key,
            fmt::format("{} = {} is not in [{}, {})", leaf(key), value, least, below));
  }
  void require(bool holds, const char* key, std::string what) {
    if (!holds) problems.push_back({key, std::move(what)});
  }

  Problems problems;

 private:
  static const char* leaf(const char* key) {
    const char* name = key;
    for (const char* c = key; *c != '\0'; ++c)
      if (*c == '.') name = c + 1;
    return name;
  }
};

constexpr double kAnyLarge = std::numeric_limits<double>::infinity();

void check_model(Checker& c, const ModelSection& model) {
  c.at_least("model.layers", model.layers, 1);
  c.at_least("model.width", model.width, 1);
  c.at_least("model.heads", model.heads, 1);
  c.at_least("model.context", model.context, 1);
  c.at_least("model.vocabulary", model.vocabulary, 0);
  // Large enough for any GPT, small enough that products of two stay inside 64 bits.
  for (const auto& [key, value] : {std::pair{"model.layers", model.layers},
                                   {"model.width", model.width},
                                   {"model.context", model.context},
                                   {"model.vocabulary", model.vocabulary}})
    c.at_most(key, value, 1 << 24);
  if (model.heads >= 1 && model.width >= 1)
    c.require(model.width % model.heads == 0, "model.heads",
              fmt::format("heads = {} does not divide width = {}", model.heads, model.width));
  c.in_range("model.dropout", model.dropout, 0, 1);
}

void check_train(Checker& c, const TrainSection& train) {
  c.at_least("train.steps", train.steps, 0);
  c.at_least("train.batch", train.batch, 1);
  // Their product, the position at the end, stays inside 64 bits.
  c.at_most("train.steps", train.steps, std::int64_t{1} << 38);
  c.at_most("train.batch", train.batch, 1 << 24);
  c.at_least("train.microbatch", train.microbatch, 0);
  if (train.microbatch > 0 && train.batch > 0)
    c.require(
        train.batch % train.microbatch == 0, "train.microbatch",
        fmt::format("microbatch = {} does not divide batch = {}", train.microbatch, train.batch));
  c.in_range("train.clip", train.clip, 0, kAnyLarge);
}

void check_optimiser(Checker& c, const OptimiserSection& optimiser, const TrainSection& train) {
  c.in_range("optimiser.lr", optimiser.lr, 0, kAnyLarge);
  c.in_range("optimiser.min_lr", optimiser.min_lr, 0, kAnyLarge);
  c.require(optimiser.min_lr <= optimiser.lr || optimiser.schedule == "constant",
            "optimiser.min_lr",
            fmt::format("min_lr = {} is above lr = {}", optimiser.min_lr, optimiser.lr));
  c.at_least("optimiser.warmup", optimiser.warmup, 0);
  c.at_least("optimiser.decay_steps", optimiser.decay_steps, 0);
  const std::int64_t end = optimiser.decay_steps > 0 ? optimiser.decay_steps : train.steps;
  c.require(
      optimiser.warmup <= end || train.steps == 0, "optimiser.warmup",
      fmt::format("warmup = {} is longer than the schedule of {} steps", optimiser.warmup, end));
  c.in_range("optimiser.beta1", optimiser.beta1, 0, 1);
  c.in_range("optimiser.beta2", optimiser.beta2, 0, 1);
  c.require(optimiser.epsilon > 0 && std::isfinite(optimiser.epsilon), "optimiser.epsilon",
            fmt::format("epsilon = {} is not a positive number", optimiser.epsilon));
  c.in_range("optimiser.weight_decay", optimiser.weight_decay, 0, kAnyLarge);
}

}  // namespace

Problems check(const RunConfig& config) {
  Checker c;
  c.require(!config.run.folder.empty(), "run.folder", "folder is empty");
  c.at_least("run.seed", config.run.seed, 0);
  c.at_least("run.threads", config.run.threads, 0);
  c.at_most("run.threads", config.run.threads, 4096);
  check_model(c, config.model);
  c.require(!config.data.train.empty(), "data.train",
            "no training data: give the prefix that `laconic prepare` wrote");
  check_train(c, config.train);
  check_optimiser(c, config.optimiser, config.train);
  c.at_least("evaluate.every", config.evaluate.every, 0);
  c.at_least("evaluate.samples", config.evaluate.samples, 0);
  c.require(config.evaluate.every == 0 || !config.data.valid.empty(), "evaluate.every",
            fmt::format("every = {} but data.valid is empty", config.evaluate.every));
  c.at_least("checkpoint.every", config.checkpoint.every, 0);
  c.at_least("checkpoint.keep", config.checkpoint.keep, 0);
  c.at_least("report.every", config.report.every, 1);
  return c.problems;
}

}  // namespace laconic
