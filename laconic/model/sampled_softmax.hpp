// model/sampled_softmax.hpp — a softmax over a target and some drawn words, for large vocabularies.
//
// With S negatives, drawn by the log-uniform law (base/word_law.hpp), and E(w) how often a word is
// expected among them, the loss of a row with target y is
//
//   -log( e^l(y) / (e^l(y) + sum of e^l(w) over negatives w other than y) ),
//   l(w) = x table[w] + bias[w] - log E(w)
//
// A negative that happens to be the target is left out in that row, as in public language models.
// Its gradient vanishes, in the mean over draws, where that of the loss over the whole vocabulary
// does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace laconic {

struct Negatives;  // base/word_law.hpp

// Rows of the table, wherever it lies: one for each id, [ids, width].
using RowsOfTable = std::function<at::Tensor(const at::Tensor& ids)>;

// Mean over rows; targets may be kNoTarget, which adds nothing. x: [rows, width], table:
// [vocabulary, width], bias: [vocabulary], targets: [rows] int64. Only rows of negatives and
// targets are asked for, once, and get a gradient.
at::Tensor sampled_cross_entropy(const at::Tensor& x, const RowsOfTable& table,
                                 const at::Tensor& bias, const at::Tensor& targets,
                                 const Negatives& negatives);

// The mean loss over the whole vocabulary, without gradients, of a table that comes `tile` rows at
// a time, from the first to the last; never more than `most_logits` at once. It is summed up in
// double.
struct SoftmaxTiles {
  std::int64_t tile = 1;
  std::int64_t most_logits = 1;
};
at::Tensor tiled_cross_entropy(const at::Tensor& x, const RowsOfTable& table,
                               const at::Tensor& bias, const at::Tensor& targets,
                               const SoftmaxTiles& tiles);

}  // namespace laconic
