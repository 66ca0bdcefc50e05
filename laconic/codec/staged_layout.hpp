// codec/staged_layout.hpp — where things lie in the staged form of a sparse payload; see
// device_codec.hpp.
#pragma once

#include <cstdint>

#include "laconic/codec/spec.hpp"

namespace laconic {

// top_k: u32 indices, unless all elements are kept, and from a multiple of 16 bytes on the values.
struct StagedTopK {
  std::uint64_t elements = 0, kept = 0;
  TensorSpec values;
  std::uint64_t values_at = 0, value_bytes = 0;
  bool has_indices() const { return kept > 0 && kept < elements; }
  std::uint64_t bytes() const { return values_at + value_bytes; }
};

StagedTopK staged_layout(const TopK& codec, const TensorSpec& tensor);

}  // namespace laconic
