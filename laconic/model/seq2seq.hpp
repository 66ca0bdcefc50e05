// model/seq2seq.hpp — what the blocks of an encoder-decoder compute; called through model.hpp
// alone.
//
// Shapes: b samples, s tokens of a source, t of a target, d width, v vocabulary. Seams
// are {x [b, s, d]} in the encoder and {memory [b, s, d], y [b, t, d]} in the decoder, whose last
// layer leaves the memory behind. Behind "source_length" there is padding, which nobody attends to.
#pragma once

#include <cstdint>

#include "laconic/model/model.hpp"

namespace laconic {

Seam forward_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out: [b * t, v].
at::Tensor logits_of(const Seq2SeqShape& shape, const Weights& weights, const Seam& seam);

// What a decoder remembers of texts that are being written, several at once: rows.
struct TargetCache {
  std::int64_t length = 0;  // tokens read so far
  at::Tensor padding;       // [rows, 1, 1, s]: true at padding of the sources
  // By layer, each [rows, heads, s or length, head width]; undefined where the layer is not held.
  std::vector<at::Tensor> memory_keys, memory_values, keys, values;
};
// Encodes sources [b, s] of these lengths [b]: a row for each. Requires: all blocks are held.
TargetCache encode_sources(const Seq2SeqShape& shape, const Weights& weights,
                           const at::Tensor& source, const at::Tensor& lengths);
// Makes row i a copy of row rows[i], [any number] int64.
void select_rows(TargetCache& cache, const at::Tensor& rows);
// Reads one more token of every row, ids [rows]: logits [rows, v] after it. Requires: as above.
at::Tensor read_targets(const Seq2SeqShape& shape, const Weights& weights, const at::Tensor& ids,
                        TargetCache& cache);

// The same block by block, for models that are held in parts. Each takes a seam of the shape that
// forward_block() would take and returns one such, the head returns logits.
TargetCache make_target_cache(const Seq2SeqShape& shape, const at::Tensor& source,
                              const at::Tensor& lengths);
// `batch` has "source", "source_length" and "ids" of one token, which nobody looks at.
Seam encode_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache);
// Seams are of one token; in the place of the encoder's stand zeros. Who has called it for all
// blocks that it holds adds 1 to the cache's length.
Seam read_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                const Seam& in, const at::Tensor& ids, TargetCache& cache);

// Sinusoidal positions [the longer context, d]; none when they are learned.
std::vector<at::Tensor> constants_of(const Seq2SeqShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
