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

at::Tensor exact_gelu(const at::Tensor& x) {
  return composed::exact_gelu(x);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return composed::swiglu(gate, up);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return composed::rms_norm(x, weight, epsilon);
}

at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines) {
  return composed::rotate(x, samples, heads, cosines, sines);
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  return can_fuse(x) ? fused::dropout_add(residual, x, dropout)
                     : composed::dropout_add(residual, x, dropout);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout) {
  return composed::attention(q, k, v, shape, lengths, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  return can_fuse(qkv) ? fused::causal_attention(qkv, samples, heads, dropout)
                       : composed::causal_attention(qkv, samples, heads, dropout);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred, double smoothing) {
  return can_fuse(x) && smoothing == 0
             ? fused::cross_entropy(x, weight, bias, targets, deferred, smoothing)
             : composed::cross_entropy(x, weight, bias, targets, deferred, smoothing);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred, double smoothing) {
  return cross_entropy(x, weight, {}, targets, deferred, smoothing);
}

}  // namespace laconic
