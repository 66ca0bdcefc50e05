#include "laconic/model/ops.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

bool can_fuse(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

void check_rotation(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                    const at::Tensor& cosines, const at::Tensor& sines) {
  LACONIC_ASSERT(
      x.size(0) % samples == 0 && x.size(1) % (2 * heads) == 0,
      fmt::format("[{}, {}] of {} samples, {} heads", x.size(0), x.size(1), samples, heads));
  for (const at::Tensor& table : {cosines, sines})
    LACONIC_ASSERT(
        table.size(0) >= x.size(0) / samples && table.size(1) == x.size(1) / heads / 2 &&
            table.scalar_type() == x.scalar_type(),
        fmt::format("angles [{}, {}] for {} tokens, {} heads of together {}", table.size(0),
                    table.size(1), x.size(0) / samples, heads, x.size(1)));
}

void check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths) {
  LACONIC_ASSERT(shape.heads % shape.key_heads == 0 && q.size(1) % shape.heads == 0 &&
                     k.size(1) == q.size(1) / shape.heads * shape.key_heads &&
                     v.sizes() == k.sizes(),
                 fmt::format("{} heads in {}, {} key heads in {} and {}", shape.heads, q.size(1),
                             shape.key_heads, k.size(1), v.size(1)));
  LACONIC_ASSERT(q.size(0) % shape.samples == 0 && k.size(0) % shape.samples == 0 &&
                     (!shape.is_causal || q.size(0) == k.size(0)),
                 fmt::format("{} queries, {} keys of {} samples{}", q.size(0), k.size(0),
                             shape.samples, shape.is_causal ? ", causal" : ""));
  LACONIC_ASSERT(!lengths.defined() || lengths.numel() == shape.samples,
                 fmt::format("{} lengths of {} samples", lengths.numel(), shape.samples));
}

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  return can_fuse(x) ? fused::gelu(x) : composed::gelu(x);
}

at::Tensor exact_gelu(const at::Tensor& x) {
  return can_fuse(x) ? fused::exact_gelu(x) : composed::exact_gelu(x);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return can_fuse(gate) ? fused::swiglu(gate, up) : composed::swiglu(gate, up);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return can_fuse(x) ? fused::rms_norm(x, weight, epsilon) : composed::rms_norm(x, weight, epsilon);
}

at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines) {
  check_rotation(x, samples, heads, cosines, sines);
  return can_fuse(x) ? fused::rotate(x, samples, heads, cosines, sines)
                     : composed::rotate(x, samples, heads, cosines, sines);
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  return can_fuse(x) ? fused::dropout_add(residual, x, dropout)
                     : composed::dropout_add(residual, x, dropout);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout) {
  check_attention(q, k, v, shape, lengths);
  return can_fuse(q) ? fused::attention(q, k, v, shape, lengths, dropout)
                     : composed::attention(q, k, v, shape, lengths, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  return can_fuse(qkv) ? fused::causal_attention(qkv, samples, heads, dropout)
                       : composed::causal_attention(qkv, samples, heads, dropout);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred, double smoothing) {
  return can_fuse(x) ? fused::cross_entropy(x, weight, bias, targets, deferred, smoothing)
                     : composed::cross_entropy(x, weight, bias, targets, deferred, smoothing);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred, double smoothing) {
  return cross_entropy(x, weight, {}, targets, deferred, smoothing);
}

}  // namespace laconic
