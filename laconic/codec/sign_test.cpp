#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

TEST(Sign, IsItsReferenceForEverySizeAndBlock) {
  for_each_target([&] {
    for (const std::int64_t block : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 64, 100, 256})
      for (const std::int64_t count :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7},
            std::int64_t{8}, std::int64_t{9}, std::int64_t{23}, block - 1, block, block + 1,
            2 * block + 5, std::int64_t{1000}})
        expect_like_reference(
            Sign{block},
            tensor_of(Dtype::f32, {count}, normal_floats(static_cast<std::size_t>(count), 3)));
  });
}

TEST(Sign, IsItsReferenceForEveryShapeAndDtype) {
  for_each_target([&] {
    for (const Dtype dtype : kFloats)
      for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
               {}, {0}, {5}, {3, 0}, {9, 31}, {2, 3, 50}, {2, 3, 4, 25}}) {
        const std::size_t count = elements_of(TensorSpec{dtype, shape});
        expect_like_reference(Sign{64}, tensor_of(dtype, shape, normal_floats(count, 4)));
      }
  });
}

// The sums start anew every 4096 elements; with numbers that do not add exactly, order shows.
TEST(Sign, LongBlocksAreSummedInPieces) {
  for_each_target([&] {
    for (const std::int64_t count : {4095, 4096, 4097, 8191, 12345, 40000})
      for (const std::int64_t block : {4096, 5000, 1 << 20})
        expect_like_reference(
            Sign{block},
            tensor_of(Dtype::f32, {count}, normal_floats(static_cast<std::size_t>(count), 5)));
  });
}

TEST(Sign, LargeOutputsAreStreamedAlike) {
  const std::int64_t count = (5 << 18) + 3;
  const Tensor x = tensor_of(Dtype::f32, {count}, normal_floats(static_cast<std::size_t>(count)));
  const Bytes payload = encoded(Sign{}, x);
  const auto expected = bits_of(reference::decode(Sign{}, x.spec, payload, {}));
  for_each_target(
      [&] { EXPECT_EQ(bits_of(floats_of(decoded(Sign{}, x.spec, payload))), expected); });
}

TEST(Sign, TheWorkedExampleIsAsTheDocumentSpellsIt) {
  const Tensor x = tensor_of(Dtype::f32, {10}, {1, -2, 3, -4, 5, -6, 7, -8, -0.5f, 0});
  const char* text = "00 00 90 40 00 00 80 3E AA 01";
  EXPECT_EQ(hex_of(encoded(Sign{8}, x)), text);
  EXPECT_EQ(
      floats_of(decoded(Sign{8}, x.spec, bytes_of_hex(text))),
      (std::vector<float>{4.5f, -4.5f, 4.5f, -4.5f, 4.5f, -4.5f, 4.5f, -4.5f, -0.25f, 0.25f}));
}

TEST(Sign, WhatIsNotFiniteSpoilsItsBlockAndNoOther) {
  const float inf = std::numeric_limits<float>::infinity();
  for_each_target([&] {
    for (const float bad : {inf, -inf, std::nanf(""), -std::nanf("")})
      for (const std::size_t at : {0, 17, 31}) {
        std::vector<float> x = normal_floats(96);
        x[32 + at] = bad;
        const Tensor tensor = tensor_of(Dtype::f32, {96}, x);
        expect_like_reference(Sign{32}, tensor);
        const auto back = floats_of(decoded(Sign{32}, tensor.spec, encoded(Sign{32}, tensor)));
        for (std::size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(back[i]), i >= 32 && i < 64);
      }
  });
  // Finite, but their sum is not.
  const Tensor large = tensor_of(Dtype::f32, {64}, std::vector<float>(64, 3e38f));
  expect_like_reference(Sign{64}, large);
  EXPECT_EQ(get<std::uint32_t>(encoded(Sign{64}, large), 0), 0x7FC00000u);
}

TEST(Sign, DenormalsCountAsZeroAndKeepTheirSigns) {
  const Tensor x = tensor_of(Dtype::f32, {16}, std::vector<float>(16, -0x1p-127f));
  for (const bool flush : {false, true}) {
    const ScopedDenormals scope(flush);
    EXPECT_EQ(hex_of(encoded(Sign{16}, x)), "00 00 00 00 FF FF");
  }
  // A mean below the normal numbers is zero too.
  const Tensor one = tensor_of(Dtype::f32, {2}, {0x1p-126f, 0.0f});
  EXPECT_EQ(hex_of(encoded(Sign{16}, one)), "00 00 00 00 00");
}

TEST(Sign, DamageIsRefusedWithItsField) {
  const TensorSpec spec{Dtype::f32, {10}};
  const Bytes good = encoded(Sign{8}, tensor_of(Dtype::f32, {10}, normal_floats(10)));
  EXPECT_EQ(refusal(Sign{8}, spec, good), "accepted");
  EXPECT_EQ(refusal(Sign{8}, spec, ByteView(good).first(9)), "payload@0");
  EXPECT_EQ(refusal(Sign{8}, {Dtype::f32, {17}}, good), "payload@0");
  const auto with_scale = [&](std::uint32_t bits) {
    Bytes bad = good;
    std::memcpy(bad.data() + 4, &bits, 4);
    return refusal(Sign{8}, spec, bad);
  };
  for (const std::uint32_t bits : {0x80000000u, 0xBF800000u, 0x00000001u, 0x007FFFFFu, 0x7F800000u,
                                   0x7FC00001u, 0xFFC00000u, 0x7F800001u})
    EXPECT_EQ(with_scale(bits), "payload.scale@4") << std::hex << bits;
  for (const std::uint32_t bits : {0u, 0x00800000u, 0x3F800000u, 0x7F7FFFFFu, 0x7FC00000u})
    EXPECT_EQ(with_scale(bits), "accepted") << std::hex << bits;
  Bytes padded = good;
  padded.back() |= std::byte{0x04};
  EXPECT_EQ(refusal(Sign{8}, spec, padded), "payload.signs@9");
  expect_no_crash(Sign{8}, tensor_of(Dtype::f32, {101}, normal_floats(101)), 3000);
}

TEST(Sign, SectionsCoverThePayload) {
  const Tensor x = tensor_of(Dtype::f32, {10}, normal_floats(10));
  const Bytes payload = encoded(Sign{8}, x);
  const auto sections = payload_sections(Sign{8}, x.spec, payload);
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].bytes, 8u);
  EXPECT_EQ(sections[1].offset + sections[1].bytes, payload.size());
}

}  // namespace
}  // namespace laconic
