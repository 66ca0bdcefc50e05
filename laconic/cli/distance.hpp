// cli/distance.hpp — how far a decoded tensor is from the original.
//
// In f64, whatever the tensor holds. A NaN in either makes every number NaN.
#pragma once

#include "laconic/base/bytes.hpp"
#include "laconic/base/dtype.hpp"

namespace laconic {

struct Distance {
  double square_error = 0, square_x = 0, square_y = 0, product = 0, max_error = 0;

  double relative_error() const;  // |x - y| / |x|; 0 when x = y
  double cosine() const;          // 1 when x = y
};

// From x to y. Requires: equally many whole elements of `dtype` in both; they may be unaligned.
Distance distance_of(Dtype dtype, ByteView x, ByteView y);

}  // namespace laconic
