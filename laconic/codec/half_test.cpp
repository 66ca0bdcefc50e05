#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/reference/reference_float.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// With denormals flushed and not, on every target.
template <class Body>
void everywhere(const Body& body) {
  for_each_target([&] {
    for (const bool flush : {false, true}) {
      SCOPED_TRACE(flush);
      const ScopedDenormals scope(flush);
      body();
    }
  });
}

std::vector<std::uint16_t> narrowed_bits(Dtype kind, const std::vector<float>& x) {
  std::vector<std::uint16_t> bits(x.size());
  narrow(kind, x.data(), x.size(), bits.data());
  return bits;
}

TEST(Convert, WidensEveryPatternOfSixteenBits) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const Dtype kind : {Dtype::f16, Dtype::bf16}) {
    std::vector<std::uint32_t> expected;
    for (const std::uint16_t bits : all)
      expected.push_back(std::bit_cast<std::uint32_t>(reference::widened(kind, bits)));
    everywhere([&] {
      std::vector<float> wide(all.size());
      widen(kind, all.data(), all.size(), wide.data());
      EXPECT_EQ(bits_of(wide), expected) << name_of(kind);
    });
  }
}

// All 16-bit numbers, all midpoints between neighbours, and the f32 next to each of them.
std::vector<float> narrowing_boundaries(Dtype kind) {
  std::vector<float> x;
  const auto add_around = [&](float v) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    for (const std::uint32_t offset : {0u, 1u, ~0u}) x.push_back(float_of(bits + offset));
  };
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float here = reference::widened(kind, static_cast<std::uint16_t>(i));
    add_around(here);
    const float next = reference::widened(kind, static_cast<std::uint16_t>(i + 1));
    if (kind == Dtype::bf16)
      add_around(float_of(std::bit_cast<std::uint32_t>(here) + 0x8000));
    else
      add_around((here + next) / 2);
  }
  for (std::uint32_t i = 0; i < 32; ++i)
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      add_around(float_of(sign | 1u << i));            // denormals and powers
      add_around(float_of(sign | (0x7F800000u + i)));  // infinities and NaNs
    }
  for (const float v : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 1e30f})
    add_around(v), add_around(-v);
  return x;
}

TEST(Convert, NarrowsAsTheReferenceAtEveryBoundary) {
  for (const Dtype kind : {Dtype::f16, Dtype::bf16}) {
    const std::vector<float> x = narrowing_boundaries(kind);
    std::vector<std::uint16_t> expected;
    for (const float v : x) expected.push_back(reference::narrowed(kind, v));
    everywhere([&] { EXPECT_EQ(narrowed_bits(kind, x), expected) << name_of(kind); });
  }
}

TEST(Convert, KnownNumbersRoundAsTheStandardSays) {
  struct Case {
    float x;
    std::uint16_t f16, bf16;
  };
  const float inf = std::numeric_limits<float>::infinity();
  const Case cases[] = {{0.0f, 0x0000, 0x0000},
                        {-0.0f, 0x8000, 0x8000},
                        {1.0f, 0x3C00, 0x3F80},
                        {-2.0f, 0xC000, 0xC000},
                        {65504.0f, 0x7BFF, 0x4780},
                        {65519.996f, 0x7BFF, 0x4780},
                        {65520.0f, 0x7C00, 0x4780},
                        {0x1p-24f, 0x0001, 0x3380},
                        {0x1p-25f, 0x0000, 0x3300},
                        {0x1.000002p-25f, 0x0001, 0x3300},
                        {0x1.8p-24f, 0x0002, 0x33C0},
                        {0x1p-14f, 0x0400, 0x3880},
                        {0x1.ff8p-15f, 0x03FF, 0x3880},
                        {0x1.ffcp-15f, 0x0400, 0x3880},
                        {0x1.002p0f, 0x3C00, 0x3F80},
                        {0x1.006p0f, 0x3C02, 0x3F80},
                        {0x1.01p0f, 0x3C04, 0x3F80},
                        {0x1.03p0f, 0x3C0C, 0x3F82},
                        {inf, 0x7C00, 0x7F80},
                        {-inf, 0xFC00, 0xFF80},
                        {0x1.fffffep127f, 0x7C00, 0x7F80},
                        {0x1p-149f, 0x0000, 0x0000},
                        {0x1p-127f, 0x0000, 0x0040},
                        {-0x1p-133f, 0x8000, 0x8001},
                        {float_of(0xFFFFFFFF), 0x7E00, 0x7FC0},
                        {float_of(0x7F800001), 0x7E00, 0x7FC0}};
  for (const Case& c : cases) {
    everywhere([&] {
      EXPECT_EQ(narrowed_bits(Dtype::f16, {c.x})[0], c.f16) << std::hexfloat << c.x;
      EXPECT_EQ(narrowed_bits(Dtype::bf16, {c.x})[0], c.bf16) << std::hexfloat << c.x;
    });
  }
}

TEST(Convert, DoublesRoundOnceAndTinyOnesAreZero) {
  struct Case {
    double wide;
    std::uint32_t narrow;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const Case cases[] = {{1.0, 0x3F800000},
                        {0x1.0000010000001p0, 0x3F800001},  // just above a tie
                        {0x1.000001p0, 0x3F800000},         // a tie, to even
                        {0x1.000003p0, 0x3F800002},
                        {0x1.fffffefffffffp127, 0x7F7FFFFF},
                        {0x1.ffffffp127, 0x7F800000},
                        {-1e300, 0xFF800000},
                        {0x1p-126, 0x00800000},
                        {0x1.fffffffffffffp-127, 0x00000000},
                        {-0x1p-140, 0x80000000},
                        {-5e-324, 0x80000000},
                        {inf, 0x7F800000},
                        {-std::nan("5"), 0x7FC00000}};
  std::vector<double> wide;
  std::vector<std::uint32_t> expected;
  for (const Case& c : cases) wide.push_back(c.wide), expected.push_back(c.narrow);
  everywhere([&] {
    std::vector<float> x(wide.size());
    widen(Dtype::f64, wide.data(), wide.size(), x.data());
    EXPECT_EQ(bits_of(x), expected);
  });
}

TEST(Convert, FloatsBecomeDoublesExactlyAndDenormalsZero) {
  const std::vector<float> x = {
      1.5f,  -0x1.fffffep127f,     0x1p-126f,           -0x1p-127f, 0x1p-149f,
      -0.0f, float_of(0xFF800000), float_of(0xFFC01234)};
  const std::uint64_t expected[] = {0x3FF8000000000000, 0xC7EFFFFFE0000000, 0x3810000000000000,
                                    0x8000000000000000, 0x0000000000000000, 0x8000000000000000,
                                    0xFFF0000000000000, 0x7FF8000000000000};
  everywhere([&] {
    std::vector<double> wide(x.size());
    narrow(Dtype::f64, x.data(), x.size(), wide.data());
    EXPECT_EQ(std::memcmp(wide.data(), expected, sizeof expected), 0);
  });
}

// Every size around the vectors' and every misalignment; nothing beyond the end is touched.
TEST(Convert, AnySizeAndAlignmentGivesTheSameBytes) {
  const std::vector<float> x = normal_floats(200);
  for (const Dtype kind : kFloats) {
    Bytes whole(200 * bytes_of(kind));
    narrow_bytes(kind, x.data(), x.size(), whole.data());
    std::vector<float> wide(200);
    widen_bytes(kind, whole.data(), 200, wide.data());
    for_each_target([&] {
      for (std::size_t count = 0; count <= 70; ++count) {
        const std::size_t offset = count % 9, bytes = count * bytes_of(kind);
        Bytes out(bytes + 32, std::byte{0xA5});
        narrow_bytes(kind, x.data(), count, out.data() + offset);
        EXPECT_EQ(std::memcmp(out.data() + offset, whole.data(), bytes), 0);
        EXPECT_EQ(out[offset + bytes], std::byte{0xA5});
        std::vector<float> back(count + 1, 7.0f);
        widen_bytes(kind, out.data() + offset, count, back.data());
        EXPECT_TRUE(std::equal(back.begin(), back.end() - 1, wide.begin()));
        EXPECT_EQ(back[count], 7.0f);
      }
    });
  }
}

// Beyond 4 MiB stores bypass the caches: another loop, with a head and a tail.
TEST(Convert, LargeOutputsAreStreamedAlike) {
  const std::size_t count = (std::size_t{9} << 19) + 13;
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 4001) - 2000.0f;
  for (const Dtype kind : kFloats) {
    const std::size_t size = bytes_of(kind);
    for_each_target([&] {
      for (const std::size_t offset : {std::size_t{0}, size, std::size_t{1}}) {
        Bytes out(count * size + 16, std::byte{0xA5});
        narrow_bytes(kind, x.data(), count, out.data() + offset);
        std::vector<float> back(count + 1, 7.0f);
        widen_bytes(kind, out.data() + offset, count, back.data());
        std::vector<float> expected(count);
        for (std::size_t i = 0; i < count; i += 4096)  // small pieces are never streamed
          widen_bytes(kind, out.data() + offset + i * size, std::min<std::size_t>(4096, count - i),
                      expected.data() + i);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.begin()));
        EXPECT_EQ(back[count], 7.0f);
        EXPECT_EQ(out[count * size + offset], std::byte{0xA5});
        if (kind != Dtype::bf16) {
          EXPECT_TRUE(std::equal(x.begin(), x.end(), back.begin()));
        }
      }
    });
  }
}

TEST(Half, IsItsReferenceForEverySizeShapeAndDtype) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {},   {0},  {1},  {2},    {3},       {7},       {8},         {9},
      {31}, {32}, {33}, {5, 7}, {3, 0, 2}, {2, 3, 4}, {2, 3, 4, 5}};
  for_each_target([&] {
    for (const Dtype dtype : kFloats)
      for (const Dtype kind : {Dtype::f16, Dtype::bf16})
        for (const auto& shape : shapes) {
          const std::size_t count = elements_of(TensorSpec{dtype, shape});
          expect_like_reference(Half{kind}, tensor_of(dtype, shape, normal_floats(count)));
        }
  });
}

TEST(Half, TheWorkedExampleIsAsTheDocumentSpellsIt) {
  const Tensor x = tensor_of(Dtype::f32, {4}, {1.0f, -0.1f, 70000.0f, float_of(0xFFC00001)});
  EXPECT_EQ(hex_of(encoded(Half{Dtype::bf16}, x)), "80 3F CD BD 89 47 C0 7F");
  EXPECT_EQ(hex_of(encoded(Half{Dtype::f16}, x)), "00 3C 66 AE 00 7C 00 7E");
}

TEST(Half, WhatIsNotFiniteStaysAndDamageIsRefused) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = tensor_of(Dtype::f32, {3}, {inf, -inf, std::nanf("")});
  for (const Dtype kind : {Dtype::f16, Dtype::bf16}) {
    const Bytes payload = encoded(Half{kind}, x);
    EXPECT_EQ(bits_of(floats_of(decoded(Half{kind}, x.spec, payload))), bits_of(floats_of(x)));
    EXPECT_EQ(refusal(Half{kind}, x.spec, payload), "accepted");
    EXPECT_EQ(refusal(Half{kind}, x.spec, ByteView(payload).first(5)), "payload@0");
    EXPECT_EQ(refusal(Half{kind}, {Dtype::f32, {2}}, payload), "payload@0");
    for_each_target([&] {
      for (std::size_t at = 0; at < 40; ++at) {
        Bytes bad(80, std::byte{0});
        bad[2 * at] = std::byte{0x81};
        bad[2 * at + 1] = std::byte{0xFF};
        EXPECT_EQ(refusal(Half{kind}, {Dtype::f32, {40}}, bad),
                  fmt::format("payload.values@{}", 2 * at));
      }
    });
    expect_no_crash(Half{kind}, x, 500);
  }
}

// A byte that is neither would be read as a bool, of which the language knows only two.
TEST(Raw, BooleansAreZeroOrOne) {
  const TensorSpec spec{Dtype::boolean, {4}};
  EXPECT_EQ(refusal(Raw{}, spec, bytes_of_hex("00 01 01 00")), "accepted");
  EXPECT_EQ(refusal(Raw{}, spec, bytes_of_hex("00 01 02 FF")), "payload.elements@2");
  EXPECT_EQ(refusal(Raw{}, {Dtype::u8, {4}}, bytes_of_hex("00 01 02 FF")), "accepted");
}

}  // namespace
}  // namespace laconic
