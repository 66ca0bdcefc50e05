#include "laconic/model/key_value_cache.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>

namespace laconic {

KeyValueCache make_cache(const CacheShape& shape, const at::TensorOptions& like) {
  KeyValueCache cache{.shape = shape, .length = 0, .keys = {}, .values = {}};
  const std::vector<std::int64_t> sizes = {shape.key_heads, shape.context, shape.head_width};
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    cache.keys.push_back(at::empty(sizes, like));
    cache.values.push_back(at::empty(sizes, like));
  }
  return cache;
}

at::Tensor attend(KeyValueCache& cache, std::int64_t layer, const at::Tensor& q,
                  const at::Tensor& k, const at::Tensor& v) {
  const CacheShape& s = cache.shape;
  if (q.size(0) == 0) return q;
  const std::int64_t rows = q.size(0), all = cache.length + rows, group = s.heads / s.key_heads;
  const auto by_head = [&](const at::Tensor& x) {  // [heads, rows, head width]
    return x.view({rows, -1, s.head_width}).transpose(0, 1);
  };
  const at::Tensor& keys = cache.keys[static_cast<std::size_t>(layer)];
  const at::Tensor& values = cache.values[static_cast<std::size_t>(layer)];
  keys.narrow(1, cache.length, rows).copy_(by_head(k));
  values.narrow(1, cache.length, rows).copy_(by_head(v));
  // Heads that share keys lie one behind the other: [key heads, group * rows, head width].
  const at::Tensor queries = by_head(q).reshape({s.key_heads, group * rows, s.head_width});
  at::Tensor scores = queries.matmul(keys.narrow(1, 0, all).transpose(1, 2));
  scores.mul_(1 / std::sqrt(static_cast<double>(s.head_width)));
  if (rows > 1) {  // the last row sees everything; earlier ones must not see later ones
    const at::Tensor future = scores.new_ones({rows, all}, at::kBool).triu(cache.length + 1);
    scores.view({s.key_heads, group, rows, all})
        .masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1)
      .matmul(values.narrow(1, 0, all))
      .view({s.heads, rows, s.head_width})
      .transpose(0, 1)
      .reshape({rows, s.heads * s.head_width});
}

at::Tensor one_text(std::span<const std::int64_t> ids, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size())).to(device).view({1, -1});
}

at::Tensor last_rows(const at::Tensor& x, std::int64_t samples, std::int64_t tokens) {
  return x.view({samples, tokens, x.size(1)}).select(1, tokens - 1);
}

}  // namespace laconic
