#include "laconic/base/crc32c.hpp"

#include <array>
#include <bit>

namespace laconic {

namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bit-reversed
constexpr std::uint32_t kMaskDelta = 0xA282EAD8;   // from TensorFlow's crc32c.h

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32c(ByteView bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte b : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xFF];
  return ~crc;
}

std::uint32_t masked_crc32c(ByteView bytes) {
  return std::rotr(crc32c(bytes), 15) + kMaskDelta;
}

}  // namespace laconic
