// The operations of model/ops.hpp from ATen parts: any device, and the reference for the fused
// ones.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "laconic/base/target.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::composed {

namespace {

constexpr std::int64_t kLow32 = 0xffffffff;

// High half of the unsigned product of two 32-bit numbers held in int64. The product may wrap into
// the sign; the shift then fills with ones, which the mask removes.
at::Tensor high_half(const at::Tensor& product) {
  return product.bitwise_right_shift(32).bitwise_and(kLow32);
}

// Philox as in base/philox.cpp, on whole tensors. key_lo, key_hi: [samples, 1]; block: [1, blocks].
// Returns words [samples, 4 * blocks] as int64.
at::Tensor philox_words(at::Tensor key_lo, at::Tensor key_hi, const at::Tensor& block,
                        std::uint64_t more = 0) {
  at::Tensor c0 = block.bitwise_and(kLow32).expand({key_lo.size(0), block.size(1)});
  at::Tensor c1 = high_half(block).expand_as(c0);
  at::Tensor c2 = at::full_like(c0, static_cast<std::int64_t>(more & kLow32));
  at::Tensor c3 = at::full_like(c0, static_cast<std::int64_t>(more >> 32));
  for (int round = 0; round < 10; ++round) {
    const at::Tensor p0 = c0.mul(std::int64_t{0xD2511F53});
    const at::Tensor p1 = c2.mul(std::int64_t{0xCD9E8D57});
    c0 = high_half(p1).bitwise_xor(c1).bitwise_xor(key_lo);
    c2 = high_half(p0).bitwise_xor(c3).bitwise_xor(key_hi);
    c1 = p1.bitwise_and(kLow32);
    c3 = p0.bitwise_and(kLow32);
    key_lo = key_lo.add(std::int64_t{0x9E3779B9}).bitwise_and(kLow32);
    key_hi = key_hi.add(std::int64_t{0xBB67AE85}).bitwise_and(kLow32);
  }
  return at::stack({c0, c1, c2, c3}, -1).flatten(1);
}

// Two words for each sample, [samples, 2] as int64.
at::Tensor keys_of(const Dropout& dropout, const at::TensorOptions& numbers) {
  if (dropout.parents.defined()) {
    const at::Tensor parents = dropout.parents.to(at::kLong).bitwise_and(kLow32);
    const at::Tensor block = at::full({1, 1}, static_cast<std::int64_t>(dropout.block), numbers);
    return philox_words(parents.narrow(1, 0, 1), parents.narrow(1, 1, 1), block, dropout.place)
        .narrow(1, 0, 2);
  }
  std::vector<std::int64_t> words;
  for (const Key key : dropout.sample_keys) {
    words.push_back(key.lo);
    words.push_back(key.hi);
  }
  return at::tensor(words).to(numbers.device()).view({-1, 2});
}

at::ScalarType at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
}

}  // namespace

at::Tensor dropout_mask(const at::Tensor& like, const Dropout& dropout, std::int64_t elements) {
  const auto options = like.options().dtype(at::kLong);
  const at::Tensor keys = keys_of(dropout, options);
  const at::Tensor block = at::arange((elements + 3) / 4, options).unsqueeze(0);
  const at::Tensor words = philox_words(keys.narrow(1, 0, 1), keys.narrow(1, 1, 1), block);
  const auto threshold = static_cast<std::int64_t>(std::ldexp(dropout.probability, 32));
  return words.narrow(1, 0, elements)
      .ge(threshold)
      .to(at_least_float(like))
      .div(1 - dropout.probability);
}

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}

at::Tensor exact_gelu(const at::Tensor& x) {
  return at::gelu(x, "none");
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate).mul(up);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x.mul(x.square().mean(-1, true).add(epsilon).rsqrt()).mul(weight);
}

at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines) {
  const std::int64_t tokens = x.size(0) / samples, half = x.size(1) / heads / 2;
  const at::Tensor pairs = x.reshape({samples, tokens, heads, 2, half});
  const at::Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
  const at::Tensor c = cosines.narrow(0, 0, tokens).unsqueeze(1);  // [tokens, 1, half]
  const at::Tensor s = sines.narrow(0, 0, tokens).unsqueeze(1);
  return at::stack({a.mul(c).sub(b.mul(s)), b.mul(c).add(a.mul(s))}, 3).reshape(x.sizes());
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  if (dropout.probability == 0) return residual.add(x);
  const auto samples = static_cast<std::int64_t>(dropout.sample_keys.size());
  if (dropout.columns > 0) {  // of the mask of whole rows, these columns
    const std::int64_t tokens = x.size(0) / samples;
    const at::Tensor mask = dropout_mask(x, dropout, tokens * dropout.columns)
                                .view({x.size(0), dropout.columns})
                                .narrow(1, dropout.first_column, x.size(1));
    return residual.add(x.mul(mask)).to(x.scalar_type());
  }
  const at::Tensor mask = dropout_mask(x, dropout, x.numel() / samples);
  return residual.add(x.mul(mask.view(x.sizes()))).to(x.scalar_type());
}

at::Tensor drop(const at::Tensor& x, const Dropout& dropout) {
  const auto samples = static_cast<std::int64_t>(dropout.sample_keys.size());
  const std::int64_t elements = x.numel() / samples, whole = dropout.tokens;
  if (dropout.first_head > 0) {  // behind the masks of the heads before
    const std::int64_t rows = whole > 0 ? whole : x.size(-2),
                       columns = whole > 0 ? whole : x.size(-1);
    const std::int64_t matrices = elements / x.size(-2) / x.size(-1);
    const at::Tensor mask =
        dropout_mask(x, dropout, (dropout.first_head + matrices) * rows * columns)
            .view({samples, dropout.first_head + matrices, rows, columns})
            .narrow(1, dropout.first_head, matrices)
            .narrow(2, 0, x.size(-2))
            .narrow(3, 0, x.size(-1));
    return x.mul(mask.reshape(x.sizes())).to(x.scalar_type());
  }
  if (whole == 0)
    return x.mul(dropout_mask(x, dropout, elements).view(x.sizes())).to(x.scalar_type());
  // The masks of the whole sample, of which this is the first corner.
  const std::int64_t rows = x.size(-2), columns = x.size(-1), matrices = elements / rows / columns;
  const at::Tensor mask = dropout_mask(x, dropout, matrices * whole * whole)
                              .view({samples, matrices, whole, whole})
                              .narrow(2, 0, rows)
                              .narrow(3, 0, columns);
  return x.mul(mask.reshape(x.sizes())).to(x.scalar_type());
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout) {
  const std::int64_t queries = q.size(0) / shape.samples, keys = k.size(0) / shape.samples;
  const std::int64_t head_width = q.size(1) / shape.heads;
  // [samples, key heads, group, rows, head width]: a group is the queries' heads of one key head.
  const auto by_head = [&](const at::Tensor& x, std::int64_t rows) {
    return x.reshape({shape.samples, rows, shape.key_heads, -1, head_width})
        .permute({0, 2, 3, 1, 4});
  };
  at::Tensor key = by_head(k, keys), value = by_head(v, keys);
  at::Tensor hidden = at::zeros({queries, keys}, q.options().dtype(at::kBool));
  if (shape.is_causal) hidden = hidden.logical_not().triu(1);
  if (lengths.defined()) {
    const at::Tensor position = at::arange(keys, lengths.options());
    const at::Tensor padding = position.ge(lengths.unsqueeze(1)).view({-1, 1, 1, 1, keys});
    hidden = hidden.logical_or(padding);
    // Nothing there may matter: zero times NaN would.
    key = key.masked_fill(padding.transpose(-1, -2), 0);
    value = value.masked_fill(padding.transpose(-1, -2), 0);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(head_width));
  at::Tensor p = by_head(q, queries).matmul(key.transpose(-1, -2)).mul(scale);
  p = p.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (dropout.probability > 0) p = laconic::drop(p, dropout);
  return p.matmul(value).permute({0, 3, 1, 2, 4}).reshape(q.sizes());
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  const std::vector<at::Tensor> parts = qkv.chunk(3, 1);
  return composed::attention(parts[0], parts[1], parts[2], {samples, heads, heads, true}, {},
                             dropout);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred, double smoothing) {
  const at::Tensor logits = transposed_linear(x, weight, bias, deferred);
  return at::cross_entropy_loss(logits.to(at_least_float(logits)), targets, {}, at::Reduction::Sum,
                                kNoTarget, smoothing)
      .div(static_cast<double>(targets.size(0)));
}

}  // namespace laconic::composed
