#include "laconic/model/decode.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"

namespace laconic {

Decoder::Decoder(const Gpt& gpt) : gpt_(gpt) {
  const GptShape& s = gpt.shape;
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::vector<std::int64_t> sizes = {s.heads, s.context, s.width / s.heads};
    const auto like = gpt.parameters.front().value.options().requires_grad(false);
    keys_.push_back(at::empty(sizes, like));
    values_.push_back(at::empty(sizes, like));
  }
}

at::Tensor Decoder::attend(std::int64_t layer, const at::Tensor& qkv) {
  const GptShape& s = gpt_.shape;
  const std::int64_t rows = qkv.size(0), seen = length_ + rows, head_width = s.width / s.heads;
  // [3, heads, rows, head width]
  const at::Tensor parts = qkv.view({rows, 3, s.heads, s.width / s.heads}).permute({1, 2, 0, 3});
  const auto l = static_cast<std::size_t>(layer);
  keys_[l].narrow(1, length_, rows).copy_(parts[1]);
  values_[l].narrow(1, length_, rows).copy_(parts[2]);
  at::Tensor scores = parts[0].matmul(keys_[l].narrow(1, 0, seen).transpose(1, 2));
  scores.mul_(1 / std::sqrt(static_cast<double>(head_width)));
  if (rows > 1) {  // the last row sees everything; earlier ones must not see later ones
    const at::Tensor future = scores.new_ones({rows, seen}, at::kBool).triu(length_ + 1);
    scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1)
      .matmul(values_[l].narrow(1, 0, seen))
      .transpose(0, 1)
      .reshape({rows, s.width});
}

at::Tensor Decoder::read(std::span<const std::int64_t> ids) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(ids.size());
  LACONIC_ASSERT(count >= 1 && length_ + count <= gpt_.shape.context,
                 fmt::format("{} + {} tokens, context {}", length_, count, gpt_.shape.context));
  const at::Tensor logits = forward_rows(
      gpt_, ids, length_,
      [this](std::int64_t layer, const at::Tensor& qkv) { return attend(layer, qkv); });
  length_ += count;
  return logits;
}

}  // namespace laconic
