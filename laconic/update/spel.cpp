#include "laconic/update/spel.hpp"

#include "laconic/update/muon.hpp"

namespace laconic {

namespace {

constexpr int kReturns = 7;  // the error e of a singular value becomes 1.5 e^2: 0.5 is then 1e-16

}  // namespace

at::Tensor nearest_orthonormal(const at::Tensor& rows) {
  at::Tensor x = rows;
  for (int i = 0; i < kReturns; ++i) x = x.mul(1.5).addmm_(x.mm(x.t()), x, 1, -0.5);
  return x;
}

void spel_update(double lr, double momentum, const at::Tensor& gradient, at::Tensor value,
                 at::Tensor& moment) {
  const at::Tensor product = gradient.mm(value.t());  // [rank, rank]
  const at::Tensor along = product.add(product.t()).mul_(0.5).mm(value);
  moment.mul_(momentum).add_(gradient.sub(along), 1 - momentum);
  value.copy_(nearest_orthonormal(value.sub(orthogonalise(moment), lr)));
}

}  // namespace laconic
