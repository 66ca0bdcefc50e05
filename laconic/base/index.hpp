// base/index.hpp — a rank, stage or member as a subscript.
//
// Those are ints, because -1 and differences of two are meaningful; containers count in size_t.
// Requires: not negative.
#pragma once

#include <cstddef>

namespace laconic {

inline std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace laconic
