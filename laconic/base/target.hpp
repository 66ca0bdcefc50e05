// base/target.hpp — the target of a position about which nothing is asked.
#pragma once

#include <cstdint>

namespace laconic {

// Stands where a token id would; adds nothing to a loss. PyTorch's ignore_index.
inline constexpr std::int64_t kNoTarget = -100;

}  // namespace laconic
