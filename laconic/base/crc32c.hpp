// base/crc32c.hpp — CRC-32C (Castagnoli), the check sum of frames and of TFRecord files.
#pragma once

#include <cstdint>

#include "laconic/base/bytes.hpp"

namespace laconic {

std::uint32_t crc32c(ByteView bytes);

// TFRecord rotates and shifts it, so that the sum of bytes that hold a sum is not degenerate.
std::uint32_t masked_crc32c(ByteView bytes);

}  // namespace laconic
