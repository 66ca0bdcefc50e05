// model/seq2seq.hpp — what the blocks of an encoder-decoder compute; called through model.hpp
// and target_cache.hpp alone.
//
// Shapes: b samples, s tokens of a source, t of a target, d width, v vocabulary. Seams
// are {x [b, s, d]} in the encoder and {memory [b, s, d], y [b, t, d]} in the decoder, whose last
// layer leaves the memory behind. Behind "source_length" there is padding, which nobody attends to.
#pragma once

#include <cstdint>

#include "laconic/model/target_cache.hpp"

namespace laconic {

Seam forward_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head: [b * t, v].
at::Tensor logits_of(const Seq2SeqShape& shape, BlockOps& ops, const at::Tensor& x);

// As in target_cache.hpp. Memory and own keys and values are [rows, heads, s or length, head
// width].
Seam encode_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache, const Pass& pass);
Seam read_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                const Seam& in, const at::Tensor& ids, TargetCache& cache, const Pass& pass);

// Sinusoidal positions [the longer context, d]; none when they are learned.
std::vector<at::Tensor> constants_of(const Seq2SeqShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
