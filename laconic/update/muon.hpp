// update/muon.hpp — Muon: momentum whose singular values are all brought near 1.
//
// For matrices inside a model. A Newton-Schulz iteration of five steps (Jordan et
// al. 2024) takes the matrix to nearly U V^T of its singular value decomposition,
// by products alone. They are libtorch's: bits depend on its BLAS, and with some
// on the number of threads. The iteration is in the matrix's own precision.
#pragma once

#include <ATen/core/Tensor.h>

#include "laconic/config/option.hpp"

namespace laconic {

struct MuonRule {
  double lr = 0;
  double momentum = 0.95;
  double weight_decay = 0;  // decoupled
  MuonScale scale = MuonScale::match_adamw;
  bool is_out_in = false;  // the matrix is [outputs, inputs]
};

// Singular values of the result are between 0.7 and 1.2 or so, but for those that are far below the
// others. Requires: two dimensions.
at::Tensor orthogonalise(const at::Tensor& matrix);

// What multiplies the rate of a matrix that maps `inputs` to `outputs`.
double muon_scale(MuonScale scale, std::int64_t inputs, std::int64_t outputs);

// One update. Weights are [inputs, outputs], as everywhere here.
void muon_update(const MuonRule& rule, const at::Tensor& gradient, at::Tensor value,
                 at::Tensor& moment);

}  // namespace laconic
