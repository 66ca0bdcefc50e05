#include "laconic/update/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace laconic {

double learning_rate(const OptimiserSection& o, std::int64_t steps, std::int64_t step) {
  const std::int64_t warmup = warmup_steps(o, steps);
  if (step < warmup) return o.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (o.schedule == LearningRateShape::constant) return o.lr;
  const std::int64_t last = (o.decay_steps > 0 ? o.decay_steps : steps) - 1;
  const auto length = static_cast<double>(std::max<std::int64_t>(1, last - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / length);
  const double left = o.schedule == LearningRateShape::linear
                          ? 1 - done
                          : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return o.min_lr + (o.lr - o.min_lr) * left;
}

}  // namespace laconic
