// base/crc32c.hpp — CRC-32C (Castagnoli), the check sum of frames and of TFRecord files.
//
// It finds damage, not malice. Runs at the speed of memory where the processor
// has an instruction for it (every x86-64-v2), at about 1 byte a cycle elsewhere.
#pragma once

#include <cstdint>

#include "laconic/base/bytes.hpp"

namespace laconic {

std::uint32_t crc32c(ByteView bytes);

// Goes on with bytes that come in pieces: crc32c(crc32c(a), b) is the sum of a followed by b.
std::uint32_t crc32c(std::uint32_t previous, ByteView bytes);

// The same by tables alone: for processors without the instruction, and to test the others against.
std::uint32_t crc32c_by_table(std::uint32_t previous, ByteView bytes);

// TFRecord rotates and shifts it, so that the sum of bytes that hold a sum is not degenerate.
std::uint32_t masked_crc32c(ByteView bytes);

}  // namespace laconic
