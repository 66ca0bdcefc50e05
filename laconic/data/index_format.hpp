// data/index_format.hpp — the constants that the reader and the writer of .idx share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace laconic {

inline constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t kIndexVersion = 1;
inline constexpr std::size_t kIndexHeaderBytes = 34;

}  // namespace laconic
