// model/decode.hpp — logits of the next token, remembering what was read before.
//
// A decoder keeps keys and values of every layer, so that a new token costs
// one pass over one row. Positions are absolute: when the context is full the
// caller starts again with a shorter text (reset()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "laconic/model/key_value_cache.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

class Decoder {
 public:
  // Throws ConfigError when the model is not causal. Requires: the weights hold all blocks and
  // outlive the decoder.
  explicit Decoder(const Weights& weights);

  std::int64_t length() const { return cache_.length; }
  void reset() { cache_.length = 0; }

  // Reads these tokens and returns the logits [vocabulary] after the last one.
  // Requires: 1 <= ids.size() <= context - length().
  at::Tensor read(std::span<const std::int64_t> ids);

 private:
  const Weights& weights_;
  KeyValueCache cache_;
};

}  // namespace laconic
