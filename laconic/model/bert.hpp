// model/bert.hpp — what the blocks of a BERT compute; called through model.hpp alone.
//
// Shapes: b samples, t tokens, d width, v vocabulary. A seam is x [b, t, d]; inside a
// block activations are matrices [b * t, d]. Behind a sample's "length" there is padding, which
// nobody attends to.
//
// The last block puts into Pass::predictions: masked and pretraining the likeliest token [b, t]
// where one was hidden and kNoTarget elsewhere; classify logits [b, labels]; regress the number [b,
// 1]; span the logits of begin and end [b, 2, t], padding at minus infinity.
#pragma once

#include <cstdint>

#include "laconic/model/model.hpp"

namespace laconic {

Seam forward_block(const BertShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head; masked and pretraining: [b * t,
// v]. Throws ConfigError for other heads.
at::Tensor logits_of(const BertShape& shape, BlockOps& ops, const at::Tensor& x);

// None.
std::vector<at::Tensor> constants_of(const BertShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
