// model/gpt.hpp — what the blocks of a GPT compute; called through model.hpp and decode.hpp alone.
//
// Shapes: b samples, t tokens, d width, v vocabulary. A seam is x [b, t, d]; inside a
// block activations are matrices [b * t, d].
#pragma once

#include <cstdint>
#include <span>

#include "laconic/model/key_value_cache.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

Seam forward_block(const GptShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head: [b * t, v].
at::Tensor logits_of(const GptShape& shape, BlockOps& ops, const at::Tensor& x);

// For one text, on a grid what this rank has of it.
KeyValueCache make_text_cache(const GptShape& shape, const Weights& weights, const Pass& pass);

// Runs `ids` of one text through the model behind what the cache holds, and adds them there.
// Returns the logits [v] after the last one, on a grid on every rank.
at::Tensor read_tokens(const GptShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache, const Pass& pass);

// None.
std::vector<at::Tensor> constants_of(const GptShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
