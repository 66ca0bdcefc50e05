#include "laconic/model/layer_parts.hpp"

#include <ATen/ops/layer_norm.h>

#include "laconic/model/linear.hpp"

namespace laconic {

at::Tensor apply(const LinearLeaves& map, const at::Tensor& x, DeferredWeights* deferred) {
  return transposed_linear(x, map.weight, map.bias, deferred);
}

at::Tensor apply(const NormLeaves& norm, const at::Tensor& x, double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, norm.weight, norm.bias, epsilon);
}

}  // namespace laconic
