// model/llama.hpp — what the blocks of a Llama compute; called through model.hpp and decode.hpp
// alone.
//
// Shapes: b samples, t tokens, d width, v vocabulary. A seam is x [b, t, d]; inside a
// block activations are matrices [b * t, d].
#pragma once

#include <cstdint>
#include <span>

#include "laconic/model/key_value_cache.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

Seam forward_block(const LlamaShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head: [b * t, v].
at::Tensor logits_of(const LlamaShape& shape, BlockOps& ops, const at::Tensor& x);

// As gpt.hpp has both.
KeyValueCache make_text_cache(const LlamaShape& shape, const Weights& weights, const Pass& pass);
at::Tensor read_tokens(const LlamaShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache, const Pass& pass);

// Cosines and sines of the angles by which pairs turn: [tokens, head width / 2] each.
std::vector<at::Tensor> constants_of(const LlamaShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
