#include "laconic/model/ops.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/layer_norm.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/linear.hpp"

namespace laconic {

namespace {

bool can_fuse(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

// bfloat16 that no kernel takes is computed as float32 and rounded.
bool is_widened(const at::Tensor& x, bool is_taken) {
  return x.scalar_type() == at::kBFloat16 && !is_taken;
}
at::Tensor widened(const at::Tensor& x) {
  return x.defined() ? x.to(at::kFloat) : x;
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

at::Tensor full_length(const at::Tensor& x) {
  return x.element_size() < 4 ? x.to(at::kFloat) : x;
}

at::Tensor gelu(const at::Tensor& x) {
  const bool is_taken = cuda::takes(x);
  if (is_widened(x, is_taken)) return laconic::gelu(widened(x)).to(x.scalar_type());
  if (can_fuse(x)) return fused::gelu(x);
  return is_taken ? cuda::gelu(x) : composed::gelu(x);
}

at::Tensor exact_gelu(const at::Tensor& x) {
  const bool is_taken = cuda::takes(x);
  if (is_widened(x, is_taken)) return exact_gelu(widened(x)).to(x.scalar_type());
  if (can_fuse(x)) return fused::exact_gelu(x);
  return is_taken ? cuda::exact_gelu(x) : composed::exact_gelu(x);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const bool is_taken = cuda::takes(gate);
  if (is_widened(gate, is_taken)) return swiglu(widened(gate), widened(up)).to(gate.scalar_type());
  if (can_fuse(gate)) return fused::swiglu(gate, up);
  return is_taken ? cuda::swiglu(gate, up) : composed::swiglu(gate, up);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const bool is_taken = cuda::takes_norm(x);
  if (is_widened(x, is_taken))
    return rms_norm(widened(x), widened(weight), epsilon).to(x.scalar_type());
  if (can_fuse(x)) return fused::rms_norm(x, weight, epsilon);
  return is_taken ? cuda::fork_rms_norm(x, weight, epsilon).normed
                  : composed::rms_norm(x, weight, epsilon);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon) {
  const bool is_taken = cuda::takes_norm(x);
  if (is_widened(x, is_taken))
    return layer_norm(widened(x), widened(weight), widened(bias), epsilon).to(x.scalar_type());
  return is_taken ? cuda::fork_layer_norm(x, weight, bias, epsilon).normed
                  : at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

Forked fork_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       double epsilon) {
  if (cuda::takes_norm(x)) return cuda::fork_layer_norm(x, weight, bias, epsilon);
  return {x, layer_norm(x, weight, bias, epsilon)};
}

Forked fork_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (cuda::takes_norm(x)) return cuda::fork_rms_norm(x, weight, epsilon);
  return {x, rms_norm(x, weight, epsilon)};
}

Forked add_layer_norm(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout,
                      const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  if (cuda::takes_norm(x) && dropout.probability == 0)
    return cuda::add_layer_norm(residual, x, weight, bias, epsilon);
  return fork_layer_norm(dropout_add(residual, x, dropout), weight, bias, epsilon);
}

Forked add_rms_norm(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout,
                    const at::Tensor& weight, double epsilon) {
  if (cuda::takes_norm(x) && dropout.probability == 0)
    return cuda::add_rms_norm(residual, x, weight, epsilon);
  return fork_rms_norm(dropout_add(residual, x, dropout), weight, epsilon);
}

at::Tensor table_rows(const at::Tensor& table, const at::Tensor& ids) {
  return cuda::takes(table) ? cuda::table_rows(table, ids) : table.index_select(0, ids);
}

at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines) {
  if (x.size(0) == 0) return x;
  check_rotation(x, samples, heads, cosines, sines);
  const bool is_taken = cuda::takes(x) && cuda::takes(cosines);
  if (is_widened(x, is_taken))
    return rotate(widened(x), samples, heads, widened(cosines), widened(sines)).to(x.scalar_type());
  if (can_fuse(x)) return fused::rotate(x, samples, heads, cosines, sines);
  return is_taken ? cuda::rotate(x, samples, heads, cosines, sines)
                  : composed::rotate(x, samples, heads, cosines, sines);
}

at::Tensor drop(const at::Tensor& x, const Dropout& dropout) {
  return cuda::takes_drop(x) && dropout.first_head == 0 ? cuda::drop(x, dropout)
                                                        : composed::drop(x, dropout);
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  const bool is_taken = cuda::takes_drop(x) && dropout.columns == 0;
  if (is_widened(x, is_taken))
    return dropout_add(widened(residual), widened(x), dropout).to(x.scalar_type());
  if (can_fuse(x)) return fused::dropout_add(residual, x, dropout);
  return is_taken ? cuda::dropout_add(residual, x, dropout)
                  : composed::dropout_add(residual, x, dropout);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout) {
  // A rank of a grid may have no sample of a small batch. Its graph is that of the others.
  if (q.size(0) == 0) return q.add(k.sum().add(v.sum()), 0);
  check_attention(q, k, v, shape, lengths);
  const bool is_taken = cuda::takes(q) && dropout.first_head == 0;
  if (is_widened(q, is_taken))
    return attention(widened(q), widened(k), widened(v), shape, lengths, dropout)
        .to(q.scalar_type());
  if (can_fuse(q)) return fused::attention(q, k, v, shape, lengths, dropout);
  return is_taken ? cuda::attention(q, k, v, shape, lengths, dropout)
                  : composed::attention(q, k, v, shape, lengths, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  if (qkv.size(0) == 0) return qkv.narrow(1, 0, qkv.size(1) / 3);
  const bool is_taken = cuda::takes(qkv) && dropout.first_head == 0;
  if (is_widened(qkv, is_taken))
    return causal_attention(widened(qkv), samples, heads, dropout).to(qkv.scalar_type());
  if (can_fuse(qkv)) return fused::causal_attention(qkv, samples, heads, dropout);
  return is_taken ? cuda::causal_attention(qkv, samples, heads, dropout)
                  : composed::causal_attention(qkv, samples, heads, dropout);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred, double smoothing,
                         std::int64_t room) {
  if (cuda::takes(x))
    return cuda::cross_entropy(x, weight, bias, targets, deferred, smoothing, room);
  if (can_fuse(x)) return fused::cross_entropy(x, weight, bias, targets, deferred, smoothing);
  if (x.is_cpu() && x.scalar_type() == at::kBFloat16)
    // The logits are rounded as they would be elsewhere; the loss is not.
    return fused::cross_entropy_of(widened(transposed_linear(x, weight, bias, deferred)), targets,
                                   smoothing);
  return composed::cross_entropy(x, weight, bias, targets, deferred, smoothing);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred, double smoothing, std::int64_t room) {
  return cross_entropy(x, weight, {}, targets, deferred, smoothing, room);
}

}  // namespace laconic
