// model/precision.hpp — the types of numbers that a model is made of.
//
// `compute` is what blocks see: activations, seams, and the copies of parameters that products
// take. `master` is what the optimiser changes and checkpoints hold, moments included. Gradients of
// microbatches add up in `sum`. Statistics of norms, softmax and losses are of at least float32
// inside of operations, whatever `compute` is, and a loss is never shorter than that.
#pragma once

#include <c10/core/ScalarType.h>

namespace laconic {

struct Precision {
  at::ScalarType compute = at::kFloat;
  at::ScalarType master = at::kFloat;
  at::ScalarType sum = at::kFloat;
};

// bfloat16 is for computing only: masters and sums are then float32. Requires: bfloat16, float32 or
// float64.
constexpr Precision precision_of(at::ScalarType compute) {
  const at::ScalarType wide = compute == at::kBFloat16 ? at::kFloat : compute;
  return {.compute = compute, .master = wide, .sum = wide};
}

}  // namespace laconic
