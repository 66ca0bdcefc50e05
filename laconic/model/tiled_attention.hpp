// model/tiled_attention.hpp — attention by tiles of query rows, forward and backward.
//
// A tile's scores are a product, become probabilities in place and are used up by
// the next product: nothing of size queries x keys is ever kept. Keys that no row
// of a tile sees, by causality or because they are padding, are left out of its
// products. Backward makes the probabilities again from the rows' log_sums.
//
// Heads are shared out to threads; each result is computed by one thread in one order.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"

namespace at {
class Tensor;
}

namespace laconic::tiled {

// What both directions know about their work.
struct AttentionTask {
  std::int64_t samples, queries, keys;  // rows of q, and of k and v, are those of one sample
  std::int64_t heads, key_heads, head_width;
  bool is_causal;
  std::vector<std::int64_t> lengths;  // keys that a sample has, padding left out
  std::vector<Key> dropout_keys;      // one per sample, when probability > 0
  double probability;
  std::int64_t drawn_queries, drawn_keys;  // by which words of dropout are numbered
  std::int64_t first_head = 0;             // the number of the first head here, likewise
};

// Matrices with rows of adjacent elements; rows may be apart (parts of a wider matrix).
// q, out: [samples * queries, heads * head width]; k, v: [samples * keys, key heads * head width];
// log_sums: [samples, heads, queries].
void attention_forward(const AttentionTask& task, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const at::Tensor& out, const at::Tensor& log_sums);

// Sets dq, dk, dv, which have the shapes of q, k, v.
void attention_backward(const AttentionTask& task, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const at::Tensor& log_sums, const at::Tensor& d_out,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

}  // namespace laconic::tiled
