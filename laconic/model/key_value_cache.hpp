// model/key_value_cache.hpp — keys and values of the tokens that a decoder has read, layer by
// layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace laconic {

// Of what is here: on a tensor grid a rank has some of the heads.
struct CacheShape {
  std::int64_t layers = 0;
  std::int64_t heads = 0;      // of queries
  std::int64_t key_heads = 0;  // of keys and values: each serves heads / key_heads of the queries
  std::int64_t context = 0;
  std::int64_t head_width = 0;
};

struct KeyValueCache {
  CacheShape shape;
  std::int64_t length = 0;         // tokens
  std::vector<at::Tensor> keys;    // per layer [key heads, context, head width]
  std::vector<at::Tensor> values;  // likewise
};
KeyValueCache make_cache(const CacheShape& shape, const at::TensorOptions& like);

// Causal attention of new rows, of which all layers see the same, to themselves and to all that the
// cache holds. q: [rows, heads * head width]; k, v: [rows, key heads * head width]. Returns what q
// is. The length stays: it is the same for all layers. Without rows it does nothing: on a grid the
// text is another rank's.
at::Tensor attend(KeyValueCache& cache, std::int64_t layer, const at::Tensor& q,
                  const at::Tensor& k, const at::Tensor& v);

// Ids of one text, [1, tokens].
at::Tensor one_text(std::span<const std::int64_t> ids, at::Device device);
// Of x [samples * tokens, width] the row of each sample's last token.
at::Tensor last_rows(const at::Tensor& x, std::int64_t samples, std::int64_t tokens);

}  // namespace laconic
