// codec/largest.hpp — the k elements of largest magnitude, exactly.
//
// NaN is larger than infinity, denormals are as small as zero, and of equals
// the first are taken. The answer never depends on the instruction set: a sample
// of the data only decides how fast it is found.
#pragma once

#include <cstdint>

#include "laconic/base/bytes.hpp"

namespace laconic {

struct Largest {
  Scratch<std::uint64_t> index;  // rising
  Scratch<float> value;
};

// Requires: k <= count.
Largest largest(const float* x, std::uint64_t count, std::uint64_t k);

}  // namespace laconic
