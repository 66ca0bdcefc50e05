// What keeps [optimiser] from being one.
#include <fmt/format.h>

#include <cmath>

#include "laconic/config/checker.hpp"

namespace laconic {

namespace {

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

void check_numbers(Checker& c, const OptimiserSection& optimiser, const TrainSection& train) {
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

}  // namespace

void check_optimiser(Checker& c, const RunConfig& config) {
  check_numbers(c, config.optimiser, config.train);
  check_kind(c, config);
}

}  // namespace laconic
