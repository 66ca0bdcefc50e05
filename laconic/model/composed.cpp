// The operations of model/ops.hpp from ATen parts: any device, and the reference for the fused
// ones.
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

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
at::Tensor philox_words(at::Tensor key_lo, at::Tensor key_hi, const at::Tensor& block) {
  at::Tensor c0 = block.bitwise_and(kLow32).expand({key_lo.size(0), block.size(1)});
  at::Tensor c1 = high_half(block).expand_as(c0);
  at::Tensor c2 = at::zeros_like(c0);
  at::Tensor c3 = at::zeros_like(c0);
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

}  // namespace

at::Tensor dropout_mask(const at::Tensor& like, const Dropout& dropout, std::int64_t elements) {
  std::vector<std::int64_t> lo, hi;
  for (const Key key : dropout.sample_keys) {
    lo.push_back(key.lo);
    hi.push_back(key.hi);
  }
  const auto options = like.options().dtype(at::kLong);
  const at::Tensor block = at::arange((elements + 3) / 4, options).unsqueeze(0);
  const at::Tensor words = philox_words(at::tensor(lo).to(options.device()).unsqueeze(1),
                                        at::tensor(hi).to(options.device()).unsqueeze(1), block);
  const auto threshold = static_cast<std::int64_t>(std::ldexp(dropout.probability, 32));
  return words.narrow(1, 0, elements)
      .ge(threshold)
      .to(like.scalar_type())
      .div(1 - dropout.probability);
}

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout) {
  if (dropout.probability == 0) return residual.add(x);
  const auto samples = static_cast<std::int64_t>(dropout.sample_keys.size());
  return residual.add(x.mul(dropout_mask(x, dropout, x.numel() / samples).view(x.sizes())));
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout) {
  const std::int64_t tokens = qkv.size(0) / samples;
  const std::int64_t width = qkv.size(1) / 3;
  const at::Tensor split =  // [3, samples, heads, tokens, head width]
      qkv.view({samples, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const std::int64_t head_width = width / heads;
  const double scale = 1 / std::sqrt(static_cast<double>(head_width));
  const at::Tensor future = at::ones({tokens, tokens}, qkv.options().dtype(at::kBool)).triu(1);
  at::Tensor p = split[0].matmul(split[1].transpose(-1, -2)).mul(scale);
  p = p.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (dropout.probability > 0)
    p = p.mul(dropout_mask(p, dropout, heads * tokens * tokens).view(p.sizes()));
  return p.matmul(split[2]).transpose(1, 2).reshape({samples * tokens, width});
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred) {
  return at::nll_loss(transposed_linear(x, weight, deferred).log_softmax(-1), targets, {},
                      at::Reduction::Sum, kNoTarget)
      .div(static_cast<double>(targets.size(0)));
}

}  // namespace laconic::composed
