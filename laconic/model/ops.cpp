#include "laconic/model/ops.hpp"

#include <ATen/core/Tensor.h>

namespace laconic {

namespace {

bool can_fuse(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  return can_fuse(x) ? fused::gelu(x) : composed::gelu(x);
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  return can_fuse(x) ? fused::dropout_add(residual, x, dropout)
                     : composed::dropout_add(residual, x, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  return can_fuse(qkv) ? fused::causal_attention(qkv, samples, heads, dropout)
                       : composed::causal_attention(qkv, samples, heads, dropout);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred) {
  return can_fuse(x) ? fused::cross_entropy(x, weight, targets, deferred)
                     : composed::cross_entropy(x, weight, targets, deferred);
}

}  // namespace laconic
