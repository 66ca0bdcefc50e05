// codec/quantise_layout.hpp — where things lie in a quantise payload.
//
// Rows are treated as blocks of a row's length: both are runs of elements. With
// groups of kind channel there are no runs; `run` is then the row, across all
// groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/codec/spec.hpp"

namespace laconic {

struct QuantiseLayout {
  std::uint64_t elements = 0;
  std::uint64_t groups = 0;
  std::uint64_t run = 0;      // elements; at least 1
  std::size_t scales_at = 0;  // after the seed, if there is one
  std::size_t codes_at = 0;
  std::size_t bytes = 0;
};

QuantiseLayout layout_of(const Quantise& codec, const TensorSpec& tensor);

}  // namespace laconic
