// update/learning_rate.hpp — the learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "laconic/config/run_config.hpp"

namespace laconic {

// For the update that ends step `step`, counted from 0: grows linearly so that the last warm-up
// step has lr, then falls to min_lr, which is reached at the last step of the schedule and kept. A
// constant schedule stays at lr; wsd (warm-up, stable, decay) stays there and falls in the last
// decay_length steps. `steps` is the length of the run, used when decay_steps is 0.
double learning_rate(const OptimiserSection& optimiser, std::int64_t steps, std::int64_t step);

}  // namespace laconic
