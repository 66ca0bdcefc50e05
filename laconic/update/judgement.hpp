// update/judgement.hpp — what a step amounts to, where its gradients are.
#pragma once

#include <cstdint>

namespace laconic {

// Doubles at these places: the norm of the gradient, what gradients are multiplied by (clipping),
// and 1 where the step may change anything. The parts of the loss are behind them.
enum class Judgement : std::int64_t { norm, scale, is_good, count };

}  // namespace laconic
