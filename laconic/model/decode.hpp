// model/decode.hpp — logits of the next token, remembering what was read before.
//
// A decoder keeps keys and values of every layer, or the state of a recurrent one, so that a new
// token costs one pass over one row. Positions are absolute: when the context is full the
// caller starts again with a shorter text (reset()).
//
// On a tensor grid every rank has a decoder, which keeps the heads that it computes, and all read
// the same tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <variant>

#include "laconic/model/key_value_cache.hpp"
#include "laconic/model/lstm.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

class Decoder {
 public:
  // Throws ConfigError when the model is not causal. Requires: the weights hold all blocks and
  // outlive the decoder, as the grid does, if they are those of one.
  explicit Decoder(const Weights& weights, TensorGrid* grid = nullptr);

  std::int64_t length() const {
    return std::visit([](const auto& cache) { return cache.length; }, cache_);
  }
  void reset() {
    std::visit([](auto& cache) { cache.length = 0; }, cache_);
  }

  // Reads these tokens and returns the logits [vocabulary] after the last one, on all ranks of a
  // grid. Collective there.
  // Requires: 1 <= ids.size() <= context - length().
  at::Tensor read(std::span<const std::int64_t> ids);

 private:
  const Weights& weights_;
  const Pass pass_;
  std::variant<KeyValueCache, LstmCache> cache_;
};

}  // namespace laconic
