#include "laconic/model/layer_parts.hpp"

#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

at::Tensor apply(const LinearLeaves& map, const at::Tensor& x, DeferredWeights* deferred) {
  return transposed_linear(x, map.weight, map.bias, deferred);
}

at::Tensor apply(const NormLeaves& norm, const at::Tensor& x, double epsilon) {
  return layer_norm(x, norm.weight, norm.bias, epsilon);
}

}  // namespace laconic
