// model/decode.hpp — logits of the next token, remembering what was read before.
//
// A decoder keeps keys and values of every layer, so that a new token costs
// one pass over one row. Positions are absolute: when the context is full the
// caller starts again with a shorter text (reset()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/model/gpt.hpp"

namespace laconic {

class Decoder {
 public:
  // Requires: gpt outlives the decoder.
  explicit Decoder(const Gpt& gpt);

  std::int64_t length() const { return length_; }
  void reset() { length_ = 0; }

  // Reads these tokens and returns the logits [vocabulary] after the last one.
  // Requires: 1 <= ids.size() <= context - length().
  at::Tensor read(std::span<const std::int64_t> ids);

 private:
  at::Tensor attend(std::int64_t layer, const at::Tensor& qkv);

  const Gpt& gpt_;
  std::int64_t length_ = 0;
  std::vector<at::Tensor> keys_;    // per layer [heads, context, head width]
  std::vector<at::Tensor> values_;  // likewise
};

}  // namespace laconic
