// model/gnmt.hpp — what the blocks of a GNMT compute; called through model.hpp and target_cache.hpp
// alone.
//
// Shapes: b samples, s tokens of a source, t of a target, d width, v vocabulary. Seams are {x [b,
// s, d or 2 d]} in the encoder, {memory [b, s, d], y [b, t, d]} before the decoder, {found [b, t,
// d], y} in it: what attention found stands in the memory's place. States of all LSTM layers begin
// with zeros, those of the decoder too. Behind "source_length" there is padding.
#pragma once

#include <cstdint>

#include "laconic/model/target_cache.hpp"

namespace laconic {

Seam forward_block(const GnmtShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head: [b * t, v].
at::Tensor logits_of(const GnmtShape& shape, BlockOps& ops, const at::Tensor& x);

// As in target_cache.hpp.
Seam encode_block(const GnmtShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache, const Pass& pass);
Seam read_block(const GnmtShape& shape, const Weights& weights, std::int64_t block, const Seam& in,
                const at::Tensor& ids, TargetCache& cache, const Pass& pass);

// None.
std::vector<at::Tensor> constants_of(const GnmtShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
