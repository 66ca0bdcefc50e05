#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/choice.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

RandomK draw_count(std::int64_t count, bool unbiased = false, ValueSpec values = Raw{}) {
  return {{0.01, count}, unbiased, values};
}
CodecInput seeded(std::uint64_t seed) {
  return {.seed = seed};
}

// The chosen indices, by asking which elements of 0, 1, 2 ... arrive.
std::vector<float> support(std::uint64_t seed, std::size_t n, std::uint64_t k) {
  std::vector<float> x(n), values(k);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  Choice(seed, n, k).gather(x.data(), values.data());
  return values;
}

TEST(RandomK, IsItsReferenceForEverySizeNumberAndSeed) {
  for_each_target([&] {
    for (const std::int64_t size : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 1000})
      for (const std::int64_t k : {1, 2, 5, 31, 32, 33, 64, 500, 501, 999, 2000})
        for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 40})
          expect_like_reference(draw_count(k, k % 2 == 0),
                                vector_of(normal_floats(static_cast<std::size_t>(size), 11)),
                                seeded(seed));
  });
}

TEST(RandomK, IsItsReferenceForEveryShapeDtypeAndKindOfValue) {
  for_each_target([&] {
    for (const Dtype dtype : kFloats)
      for (const ValueSpec& values :
           {ValueSpec(Raw{}), ValueSpec(Half{Dtype::f16}), ValueSpec(Half{Dtype::bf16})})
        for (const auto& shape : kShapes) {
          const std::size_t count = elements_of(TensorSpec{dtype, shape});
          const Tensor x = tensor_of(dtype, shape, normal_floats(count, 12));
          expect_like_reference(RandomK{{0.2, 0}, true, values}, x, seeded(99));
        }
  });
}

TEST(RandomK, LargeTensorsAreChosenAlike) {
  const Tensor x = vector_of(normal_floats(70001, 13));
  for (const std::int64_t k : {7000, 35001, 60000})
    for_each_target([&] { expect_like_reference(draw_count(k), x, seeded(5)); });
}

TEST(RandomK, TheWorkedExampleIsAsTheDocumentSpellsIt) {
  const Tensor x = vector_of({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(hex_of(encoded(draw_count(3), x, seeded(7))),
            "07 00 00 00 00 00 00 00 00 00 80 40 00 00 C0 40 00 00 00 41");
}

TEST(RandomK, TheSeedAloneDecides) {
  const auto first = support(3, 1000, 100);
  EXPECT_EQ(first, support(3, 1000, 100));
  EXPECT_NE(first, support(4, 1000, 100));
  for (std::size_t j = 1; j < first.size(); ++j) EXPECT_LT(first[j - 1], first[j]);
  // decode() takes the seed from the payload, not from its input.
  const Tensor x = vector_of(normal_floats(1000));
  const Bytes payload = encoded(draw_count(100), x, seeded(3));
  EXPECT_EQ(floats_of(decoded(draw_count(100), x.spec, payload, seeded(3))),
            floats_of(decoded(draw_count(100), x.spec, payload, seeded(8))));
}

TEST(RandomK, EveryElementIsKeptAsOftenAsTheOthers) {
  for (const std::uint64_t k : {5, 25, 40}) {
    const std::size_t n = 50, seeds = 20000;
    std::vector<double> times(n);
    for (std::uint64_t seed = 0; seed < seeds; ++seed)
      for (const float i : support(seed, n, k)) ++times[static_cast<std::size_t>(i)];
    const double p = static_cast<double>(k) / static_cast<double>(n);
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(seeds));
    for (const double t : times) EXPECT_NEAR(t / static_cast<double>(seeds), p, 5 * deviation);
  }
}

TEST(RandomK, ValuesAreUnscaledUnlessAskedAndThenUnbiased) {
  const std::vector<float> x = normal_floats(60, 14);
  const Tensor tensor = vector_of(x);
  const auto plain =
      floats_of(decoded(draw_count(20), tensor.spec, encoded(draw_count(20), tensor, seeded(1))));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(plain[i] == 0 || plain[i] == x[i]);
  std::vector<double> mean(x.size());
  const int seeds = 6000;
  for (int seed = 0; seed < seeds; ++seed) {
    const RandomK codec = draw_count(20, true);
    const auto back = floats_of(decoded(
        codec, tensor.spec, encoded(codec, tensor, seeded(static_cast<std::uint64_t>(seed)))));
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += back[i] / double{seeds};
  }
  const double deviation = std::sqrt(2.0 / seeds);  // of an estimate of 1: (n / k - 1) / seeds
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(mean[i], x[i], 5 * deviation * std::fabs(x[i]));
}

TEST(RandomK, WhatIsNotFiniteTravelsWhenChosen) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, -std::nanf("3")}) {
    const Tensor x = vector_of(std::vector<float>(20, bad));
    const auto back =
        floats_of(decoded(draw_count(5), x.spec, encoded(draw_count(5), x, seeded(2))));
    std::size_t kept = 0;
    for (const float v : back) kept += v == 0 ? 0 : 1;
    EXPECT_EQ(kept, 5u);
    expect_like_reference(draw_count(5), x, seeded(2));
  }
}

TEST(RandomK, DamageIsRefusedWithItsField) {
  const TensorSpec spec{Dtype::f32, {100}};
  const Bytes good = encoded(draw_count(3), vector_of(normal_floats(100)), seeded(1));
  EXPECT_EQ(refusal(draw_count(3), spec, good), "accepted");
  EXPECT_EQ(refusal(draw_count(3), spec, ByteView(good).first(19)), "payload@0");
  EXPECT_EQ(refusal(draw_count(4), spec, good), "payload@0");
  EXPECT_EQ(refusal(draw_count(4), {Dtype::f32, {0}}, good), "payload@0");
  Bytes bad = good;
  const std::uint32_t nan = 0xFFC00000u;
  std::memcpy(bad.data() + 12, &nan, 4);
  EXPECT_EQ(refusal(draw_count(3), spec, bad), "payload.values@12");
  expect_no_crash(draw_count(30), vector_of(normal_floats(100)), 2000, seeded(4));
}

TEST(RandomK, SectionsCoverThePayload) {
  const Tensor x = vector_of(normal_floats(100));
  const RandomK codec = draw_count(10, false, Half{});
  const auto sections = payload_sections(codec, x.spec, encoded(codec, x, seeded(1)));
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].name, "seed");
  EXPECT_EQ(sections[1].offset, 8u);
  EXPECT_EQ(sections[1].bytes, 20u);
}

}  // namespace
}  // namespace laconic
