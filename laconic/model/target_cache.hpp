// model/target_cache.hpp — writing texts for other texts, token by token: what is remembered, and
// the same functions for every family that does it.
//
// By block, for models that are held in parts. Seams have the shapes that forward_block() gives
// them. On a tensor grid, which the pass tells, all ranks make the same calls, each with the rows
// and heads that it computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/model/model.hpp"

namespace laconic {

// What a decoder remembers of texts that are being written, several at once: rows.
struct TargetCache {
  std::int64_t length = 0;  // tokens read so far
  at::Tensor padding;  // [rows, 1, 1, s]: true at padding of the sources; of all rows everywhere
  // By layer, dim 0 the row; undefined where the layer is not held, or has none. What is looked at,
  // and what is remembered of the tokens: of attention keys and values, of an LSTM h and cells.
  std::vector<at::Tensor> memory_keys, memory_values, keys, values;
};

// For sources [rows, s] of these lengths [rows].
TargetCache make_target_cache(const Weights& weights, const at::Tensor& source,
                              const at::Tensor& lengths);
// Makes row i a copy of row rows[i], [any number] int64. On a grid that cuts rows they may change
// hands: then what is remembered of all of them is gathered, layer by layer.
void select_rows(const Weights& weights, TargetCache& cache, const at::Tensor& rows,
                 const Pass& pass = {});

// Runs a block of the encoder, or takes into the cache what a block of the decoder needs of it.
// `batch` has "source", "source_length" and "ids" of one token, which nobody looks at.
Seam encode_block(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch,
                  TargetCache& cache, const Pass& pass = {});
// Reads one more token of every row, ids [rows]; the head returns logits [rows, vocabulary], on all
// ranks of a grid. Seams are of one token; in the place of the encoder's stand zeros. Who has
// called it for all blocks that it holds adds 1 to the cache's length.
Seam read_block(const Weights& weights, std::int64_t block, const Seam& in, const at::Tensor& ids,
                TargetCache& cache, const Pass& pass = {});

// Both for all blocks. Requires: they are held.
TargetCache encode_sources(const Weights& weights, const at::Tensor& source,
                           const at::Tensor& lengths, const Pass& pass = {});
at::Tensor read_targets(const Weights& weights, const at::Tensor& ids, TargetCache& cache,
                        const Pass& pass = {});

}  // namespace laconic
