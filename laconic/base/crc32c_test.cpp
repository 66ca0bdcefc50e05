#include "laconic/base/crc32c.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

// The definition, bit by bit.
std::uint32_t by_bit(ByteView bytes) {
  std::uint32_t state = ~std::uint32_t{0};
  for (const std::byte b : bytes) {
    state ^= std::to_integer<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) state = state >> 1 ^ (state & 1 ? 0x82F63B78 : 0);
  }
  return ~state;
}

Bytes noise(std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = 12345;
  for (std::byte& b : bytes) {
    state = state * 1664525 + 1013904223;
    b = std::byte(state >> 24);
  }
  return bytes;
}

// The vectors of RFC 3720, B.4, and the usual check value.
TEST(Crc32c, MatchesThePublishedVectors) {
  Bytes rising, falling;
  for (int i = 0; i < 32; ++i) rising.push_back(std::byte(i)), falling.push_back(std::byte(31 - i));
  EXPECT_EQ(crc32c(std::as_bytes(std::span("123456789", 9))), 0xE3069283u);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0})), 0x8A9136AAu);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0xFF})), 0x62A8AB43u);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, EveryLengthAndOffsetIsWhatTheDefinitionSays) {
  const Bytes bytes = noise(1016);
  for (std::size_t offset = 0; offset < 16; ++offset)
    for (std::size_t size = 0; size <= 1000; ++size) {
      const ByteView part = ByteView(bytes).subspan(offset, size);
      const std::uint32_t expected = by_bit(part);
      ASSERT_EQ(crc32c(part), expected) << offset << " " << size;
      ASSERT_EQ(crc32c_by_table(0, part), expected) << offset << " " << size;
    }
}

TEST(Crc32c, LongOnesToo) {
  const Bytes bytes = noise(1'000'000);
  for (const std::size_t size : {3071, 3072, 3073, 6144, 6527, 6528, 131'071, 131'072, 131'073,
                                 131'135, 131'264, 400'000, 1'000'000})
    for (const std::size_t offset : {0, 1, 7}) {
      const ByteView part = ByteView(bytes).subspan(offset, std::min(size, bytes.size() - offset));
      EXPECT_EQ(crc32c(part), by_bit(part)) << offset << " " << size;
      EXPECT_EQ(crc32c_by_table(0, part), by_bit(part)) << offset << " " << size;
    }
}

TEST(Crc32c, PiecesGiveTheSameSum) {
  const Bytes whole = noise(500);
  const ByteView bytes = whole;
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::uint32_t front = crc32c(bytes.first(cut));
    EXPECT_EQ(crc32c(front, bytes.subspan(cut)), crc32c(bytes)) << cut;
    EXPECT_EQ(crc32c_by_table(front, bytes.subspan(cut)), crc32c(bytes)) << cut;
  }
}

}  // namespace
}  // namespace laconic
