// model/lstm.hpp — what the blocks of an LSTM language model compute; called through model.hpp and
// decode.hpp alone.
//
// Shapes: b samples, t tokens, d width, v vocabulary. A seam is x [b, t, d]. Cells begin with zeros
// in every sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/model/lstm_layer.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

Seam forward_block(const LstmShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass);

// From what the last layer put out, by the operations of the head: [b * t, v].
at::Tensor logits_of(const LstmShape& shape, BlockOps& ops, const at::Tensor& x);

// What is remembered of one text that is being read.
struct LstmCache {
  std::int64_t context = 0;
  std::int64_t length = 0;        // tokens; at 0 the states are not looked at
  std::vector<LstmState> states;  // by layer, of one row
};
LstmCache make_text_cache(const LstmShape& shape, const Weights& weights, const Pass& pass);

// Runs `ids` of one text through the model behind what the cache holds, and adds them there.
// Returns the logits [v] after the last one.
at::Tensor read_tokens(const LstmShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, LstmCache& cache, const Pass& pass);

// None.
std::vector<at::Tensor> constants_of(const LstmShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like);

}  // namespace laconic
