#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr Quantise kValues[] = {
    Quantise{},
    Quantise{.bits = 4, .block = 64},
    Quantise{.bits = 3, .block = 7, .scale = ScaleType::f16},
    Quantise{.bits = 2, .block = 32, .scale = ScaleType::pow2},
    Quantise{.bits = 1, .block = 16, .grid = Grid::ends},
    Quantise{.bits = 5, .rounding = Rounding::stochastic, .grid = Grid::ends},
};

template <class Codec>
std::vector<Codec> codecs_with(const Quantise& values) {
  std::vector<Codec> all(3);
  for (Codec& codec : all) codec.values = values;
  all[0].kept = {0.05, 0};
  all[1].kept = {0.5, 0};
  all[2].kept = {1.0, 0};
  return all;
}

template <class Codec>
void expect_like_reference_everywhere() {
  for_each_target([&] {
    for (const Quantise& values : kValues)
      for (const Codec& codec : codecs_with<Codec>(values))
        for (const Dtype dtype : kFloats)
          for (const std::int64_t count : {0, 1, 2, 9, 100, 1000}) {
            const auto x = normal_floats(static_cast<std::size_t>(count), 21);
            expect_like_reference(codec, tensor_of(dtype, {count}, x), {.seed = 17});
          }
  });
}

TEST(SparseQuantise, TopKIsItsReference) {
  expect_like_reference_everywhere<TopK>();
}

TEST(SparseQuantise, RandomKIsItsReference) {
  expect_like_reference_everywhere<RandomK>();
}

// A value that is not finite is kept, and spoils the block it travels in: the whole of it.
TEST(SparseQuantise, WhatIsNotFiniteSpoilsItsBlockOfValues) {
  std::vector<float> x = normal_floats(1000, 22);
  x[3] = std::nanf("");
  const TopK codec{{0.01, 100}, Quantise{.bits = 4, .block = 50}};
  const Tensor tensor = tensor_of(Dtype::f32, {1000}, x);
  expect_like_reference(codec, tensor);
  int spoilt = 0;
  for (const float v : floats_of(decoded(codec, tensor.spec, encoded(codec, tensor))))
    spoilt += std::isnan(v) ? 1 : 0;
  EXPECT_EQ(spoilt, 50);
}

TEST(SparseQuantise, DamagedScalesAreNamedAndCountedFromThePayload) {
  const Tensor x = tensor_of(Dtype::f32, {100}, normal_floats(100, 23));
  const RandomK codec{{0.01, 20}, false, Quantise{.bits = 4, .block = 10}};
  Bytes payload = encoded(codec, x);
  EXPECT_EQ(refusal(codec, x.spec, payload), "accepted");
  const std::uint32_t infinite = 0x7F800000u;
  std::memcpy(payload.data() + 12, &infinite, 4);
  EXPECT_EQ(refusal(codec, x.spec, payload), "payload.values.scale@12");
}

TEST(SparseQuantise, RandomDamageNeverCrashes) {
  const Tensor x = tensor_of(Dtype::f32, {500}, normal_floats(500, 24));
  for (const Quantise& values : kValues) {
    expect_no_crash(TopK{{0.1, 0}, values}, x, 1000);
    expect_no_crash(RandomK{{0.1, 0}, false, values}, x, 1000);
  }
}

TEST(SparseQuantise, SectionsCoverThePayload) {
  const Tensor x = tensor_of(Dtype::f32, {500}, normal_floats(500, 25));
  for (const Quantise& values : kValues) {
    const TopK codec{{0.1, 0}, values};
    expect_sections_cover(codec, x);
  }
}

}  // namespace
}  // namespace laconic
