// update/spel.hpp — a step on matrices with orthonormal rows (SPEL, as MAPL has it).
//
// The gradient without what would leave the manifold is averaged, the average's singular values
// are brought near 1 as Muon does, and the result of the step is brought back to
// orthonormal rows. Products are libtorch's: where two stages hold the same matrix, they must
// compute it alike, as for every parameter that they share.
#pragma once

#include <ATen/core/Tensor.h>

namespace laconic {

// A basis learns at a tenth of the weights' rate, as published.
inline constexpr double kBasisRate = 0.1;

// The nearest matrix with orthonormal rows. Requires: singular values between 0.5 and 1.5.
at::Tensor nearest_orthonormal(const at::Tensor& rows);

// One update. Matrices are [rank, width], rank <= width.
void spel_update(double lr, double momentum, const at::Tensor& gradient, at::Tensor value,
                 at::Tensor& moment);

}  // namespace laconic
