// update/optimiser.hpp — AdamW: the only code that changes parameters.
//
// State is two tensors per parameter and a count of updates: all of it goes
// into the checkpoint, and nothing else is needed to continue bit for bit. A
// skipped update (non-finite gradient) changes neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/model/weights.hpp"

namespace laconic {

struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled, and not on one-dimensional parameters
};

struct OptimiserState {
  std::int64_t updates = 0;
  std::vector<at::Tensor> moment1;  // in the order of the parameters
  std::vector<at::Tensor> moment2;
};

OptimiserState make_optimiser_state(const std::vector<Parameter>& parameters);

// The square of the norm of each gradient, in the order of the parameters. Sums fixed chunks of
// each in a fixed order, so it depends neither on the number of threads nor on what other
// parameters there are. A parameter without a gradient counts as zero.
std::vector<double> squared_norms(const std::vector<Parameter>& parameters);
// The norm of them all: adds from first to last. Whoever has the squares of a whole model in the
// order of their numbers gets the same bits, however many ranks they came from.
double norm_of(const std::vector<double>& squares);
// Euclidean norm over all gradients: norm_of(squared_norms(parameters)).
double global_norm(const std::vector<Parameter>& parameters);

// One step. Gradients are multiplied by `gradient_scale` on the way (clipping).
void apply(const AdamW& adamw, OptimiserState& state, const std::vector<Parameter>& parameters,
           double lr, double gradient_scale);

// The same when the new first moment is known already and stands where the gradients were: the
// second moment stays as it is (compressed_adam).
void apply_moment(const AdamW& adamw, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr);

}  // namespace laconic
