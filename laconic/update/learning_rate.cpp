#include "laconic/update/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace laconic {

namespace {

// The part of lr - min_lr that is left when this share of the decay is done.
double left_of(DecayShape shape, double done) {
  switch (shape) {
    case DecayShape::linear: return 1 - done;
    case DecayShape::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * done));
    case DecayShape::one_minus_sqrt: return 1 - std::sqrt(done);
  }
  return 0;
}

// Steps of a wsd decay; at least one, and none before warm-up has ended.
std::int64_t decay_length(const OptimiserSection& o, std::int64_t warmup, std::int64_t end) {
  const double steps =
      o.decay_length < 1 ? std::round(o.decay_length * static_cast<double>(end)) : o.decay_length;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(steps), 1,
                                  std::max<std::int64_t>(1, end - warmup));
}

// The share of the decay that is done with this step, which is not in warm-up.
double done_by(const OptimiserSection& o, std::int64_t warmup, std::int64_t end,
               std::int64_t step) {
  if (o.schedule == LearningRateShape::wsd) {
    const std::int64_t length = decay_length(o, warmup, end);
    const std::int64_t passed = step - (end - length) + 1;
    return std::clamp(static_cast<double>(passed) / static_cast<double>(length), 0.0, 1.0);
  }
  const auto length = static_cast<double>(std::max<std::int64_t>(1, end - 1 - warmup));
  return std::min(1.0, static_cast<double>(step - warmup) / length);
}

DecayShape shape_of(const OptimiserSection& o) {
  if (o.schedule == LearningRateShape::wsd) return o.decay;
  return o.schedule == LearningRateShape::linear ? DecayShape::linear : DecayShape::cosine;
}

}  // namespace

double learning_rate(const OptimiserSection& o, std::int64_t steps, std::int64_t step) {
  const std::int64_t warmup = warmup_steps(o, steps);
  if (step < warmup) return o.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (o.schedule == LearningRateShape::constant) return o.lr;
  const std::int64_t end = o.decay_steps > 0 ? o.decay_steps : steps;
  return o.min_lr + (o.lr - o.min_lr) * left_of(shape_of(o), done_by(o, warmup, end, step));
}

}  // namespace laconic
