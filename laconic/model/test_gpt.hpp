// model/test_gpt.hpp — for tests: a GPT small enough for finite differences, and something to read.
#pragma once

#include <ATen/ops/tensor.h>

#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

inline constexpr GptShape kTinyShape{
    .layers = 2, .width = 24, .heads = 3, .context = 10, .vocabulary = 31};

inline Weights make_tiny_weights(at::ScalarType dtype) {
  return make_weights(kTinyShape, 11, at::TensorOptions().dtype(dtype));
}

// [samples, tokens], the same at every call.
inline at::Tensor some_ids(std::int64_t samples, std::int64_t tokens) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < samples * tokens; ++i)
    ids.push_back(word_at(key_of(9), static_cast<std::uint64_t>(i)) % kTinyShape.vocabulary);
  return at::tensor(ids).view({samples, tokens});
}

}  // namespace laconic
