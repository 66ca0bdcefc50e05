#include "laconic/engine/segment.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/engine/test_message.hpp"

namespace laconic {
namespace {

std::vector<Bytes> cut_all(const Bytes& message, std::size_t segment_bytes) {
  std::vector<Bytes> segments;
  std::size_t offset = 0;
  do {
    segments.emplace_back();
    offset = cut_segment(message, offset, segment_bytes, segments.back());
  } while (offset < message.size());
  return segments;
}

// The message, or nothing when segments are missing.
std::optional<Bytes> assemble(const std::vector<Bytes>& segments) {
  Assembly assembly;
  std::optional<Bytes> message;
  for (const Bytes& segment : segments) message = assembly.add(segment);
  return message;
}

std::string refused_field(const std::vector<Bytes>& segments) {
  try {
    assemble(segments);
  } catch (const WireError& error) {
    return error.field();
  }
  return "";
}

TEST(Segment, EveryMessageIsPutTogetherAsItWas) {
  for (std::size_t segment_bytes = 1; segment_bytes <= 20; ++segment_bytes)
    for (std::size_t bytes = 0; bytes <= 64; ++bytes) {
      const Bytes message = message_of(bytes, segment_bytes);
      const std::vector<Bytes> segments = cut_all(message, segment_bytes);
      ASSERT_EQ(segments.size(), segments_of(bytes, segment_bytes));
      std::size_t wire = 0;
      for (const Bytes& segment : segments) wire += segment.size();
      ASSERT_EQ(wire, wire_bytes(bytes, segment_bytes));
      ASSERT_EQ(assemble(segments), message) << bytes << " in segments of " << segment_bytes;
    }
}

TEST(Segment, TrailerIsWhatTheHeaderSays) {
  const std::vector<Bytes> segments = cut_all(message_of(5, 0), 2);
  ASSERT_EQ(segments.size(), 3U);
  const auto trailer = [&](std::size_t i) {
    const std::size_t at = segments[i].size() - kSegmentTrailer;
    return std::tuple(get<std::uint32_t>(segments[i], at), get<std::uint32_t>(segments[i], at + 4),
                      get<std::uint64_t>(segments[i], at + 8));
  };
  EXPECT_EQ(trailer(0), std::tuple(0x3147534cU, 1U, 5U));
  EXPECT_EQ(trailer(1), std::tuple(0x3147534cU, 0U, 2U));
  EXPECT_EQ(trailer(2), std::tuple(0x3147534cU, 2U, 4U));
}

TEST(Segment, AnyBitFlippedInAnyTrailerIsRefused) {
  for (const std::size_t bytes : {0U, 3U, 8U, 9U, 24U}) {
    const std::vector<Bytes> good = cut_all(message_of(bytes, 1), 8);
    for (std::size_t s = 0; s < good.size(); ++s)
      for (std::size_t bit = 0; bit < 8 * kSegmentTrailer; ++bit) {
        std::vector<Bytes> bad = good;
        bad[s][bad[s].size() - 1 - bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_NE(refused_field(bad), "") << bytes << " bytes, segment " << s << ", bit " << bit;
      }
  }
}

TEST(Segment, AnyLengthButTheRightOneIsRefused) {
  const std::vector<Bytes> good = cut_all(message_of(20, 1), 8);
  for (std::size_t s = 0; s < good.size(); ++s)
    for (std::size_t bytes = 0; bytes < good[s].size(); ++bytes) {
      std::vector<Bytes> bad = good;  // cut at the front, so that the trailer stays
      bad[s].erase(bad[s].begin(), bad[s].end() - static_cast<std::ptrdiff_t>(bytes));
      EXPECT_NE(refused_field(bad), "") << s << " of " << bytes;
    }
}

TEST(Segment, AnyOrderButTheRightOneIsRefused) {
  const std::vector<Bytes> good = cut_all(message_of(24, 1), 8);
  const std::vector<Bytes> other = cut_all(message_of(5, 2), 8);
  EXPECT_EQ(refused_field({good[0], good[1], good[2]}), "");
  EXPECT_EQ(refused_field({good[1]}), "segment.flags");
  EXPECT_EQ(refused_field({good[0], good[2]}), "segment.offset");
  EXPECT_EQ(refused_field({good[0], good[1], good[1]}), "segment.offset");
  EXPECT_EQ(refused_field({good[0], good[0]}), "segment.flags");
  EXPECT_EQ(refused_field({good[0], other[0]}), "segment.flags");
}

TEST(Segment, APromiseOfManyBytesReservesFewOfThem) {
  std::vector<Bytes> segments = cut_all(message_of(24, 1), 8);
  const std::uint64_t promise = std::uint64_t{1} << 60;
  std::memcpy(segments[0].data() + segments[0].size() - 8, &promise, sizeof promise);
  Assembly assembly;
  EXPECT_EQ(assembly.add(segments[0]), std::nullopt);  // and not std::bad_alloc
  EXPECT_EQ(assembly.total(), promise);
  EXPECT_EQ(assembly.bytes(), 8U);
  EXPECT_EQ(assembly.add(segments[1]), std::nullopt);
  EXPECT_THROW(assembly.add(segments[2]), WireError);
}

}  // namespace
}  // namespace laconic
