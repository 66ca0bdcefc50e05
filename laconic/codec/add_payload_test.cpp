#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

Bytes sum_of(const CodecSpec& codec, const TensorSpec& spec, Bytes a, const Bytes& b) {
  add_payload(codec, spec, a, b);
  EXPECT_EQ(refusal(codec, spec, a), "accepted");
  return a;
}

// Sums of whole numbers are exact in every dtype, so the order of rounding cannot matter.
std::vector<float> whole_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i)
    x[i] = static_cast<float>(word_at(key_of(seed), i) % 101) - 50.0f;
  return x;
}

TEST(AddPayload, TheSumDecodesToTheSum) {
  const RandomK random{{0.1, 0}, false, Raw{}};
  for_each_target([&] {
    for (const Dtype dtype : kFloats)
      for (const std::int64_t count : {0, 1, 9, 1023, 1024, 5000})
        for (const CodecSpec& codec : {CodecSpec(Raw{}), CodecSpec(random)}) {
          const auto n = static_cast<std::size_t>(count);
          const Tensor a = tensor_of(dtype, {count}, whole_numbers(n, 1));
          const Tensor b = tensor_of(dtype, {count}, whole_numbers(n, 2));
          const CodecInput input{.seed = 31};
          const Bytes left = encoded(codec, a, input), right = encoded(codec, b, input);
          const auto sum = floats_of(decoded(codec, a.spec, sum_of(codec, a.spec, left, right)));
          const auto x = floats_of(decoded(codec, a.spec, left));
          const auto y = floats_of(decoded(codec, a.spec, right));
          for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], x[i] + y[i]);
        }
  });
}

TEST(AddPayload, SixteenBitSumsAreRoundedOnce) {
  const TensorSpec spec{Dtype::bf16, {1}};
  const Tensor one = tensor_of(Dtype::bf16, {1}, {1.0f});
  const Tensor small = tensor_of(Dtype::bf16, {1}, {0x1.8p-8f});
  const Bytes sum = sum_of(Raw{}, spec, encoded(Raw{}, one), encoded(Raw{}, small));
  EXPECT_EQ(hex_of(sum), "81 3F");
}

TEST(AddPayload, WhatIsNotFiniteGivesTheCanonicalNan) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Dtype dtype : kFloats) {
    const Tensor a = tensor_of(dtype, {3}, {inf, inf, std::nanf("")});
    const Tensor b = tensor_of(dtype, {3}, {-inf, 1.0f, 1.0f});
    const RandomK all{{1.0, 0}, false, Raw{}};
    for (const CodecSpec& codec : {CodecSpec(Raw{}), CodecSpec(all)}) {
      const Bytes sum = sum_of(codec, a.spec, encoded(codec, a), encoded(codec, b));
      const auto back = floats_of(decoded(codec, a.spec, sum));
      EXPECT_EQ(bits_of(back), (std::vector<std::uint32_t>{0x7FC00000u, 0x7F800000u, 0x7FC00000u}));
    }
  }
}

template <class T>
void expect_integer_sum(Dtype dtype, T a, T b, T expected) {
  const TensorSpec spec{dtype, {1}};
  Bytes sum, addend;
  put(sum, a), put(addend, b);
  EXPECT_EQ(get<T>(sum_of(Raw{}, spec, sum, addend), 0), expected) << name_of(dtype);
}

TEST(AddPayload, IntegersWrapAndBooleansUnite) {
  expect_integer_sum<std::int64_t>(Dtype::i64, std::numeric_limits<std::int64_t>::max(), 1,
                                   std::numeric_limits<std::int64_t>::min());
  expect_integer_sum<std::int32_t>(Dtype::i32, -5, 3, -2);
  expect_integer_sum<std::int16_t>(Dtype::i16, 32767, 2, -32767);
  expect_integer_sum<std::int8_t>(Dtype::i8, -100, -100, 56);
  expect_integer_sum<std::uint8_t>(Dtype::u8, 200, 100, 44);
  expect_integer_sum<std::uint8_t>(Dtype::boolean, 1, 1, 1);
  expect_integer_sum<std::uint8_t>(Dtype::boolean, 0, 1, 1);
}

TEST(AddPayload, LearnedCodesAreSummedAsFloats) {
  const AutoEncoder codec{2, Dtype::f32};
  const TensorSpec spec{Dtype::bf16, {3, 8}};  // 3 rows of 2 numbers
  Bytes sum, addend;
  for (int i = 0; i < 6; ++i) put(sum, 1.0f * i), put(addend, 0.5f);
  sum = sum_of(codec, spec, sum, addend);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(get<float>(sum, static_cast<std::size_t>(4 * i)), i + 0.5f);
}

// An infinity is nothing that this codec writes: what overflows becomes NaN, as in encode().
TEST(AddPayload, LearnedCodesThatOverflowBecomeNan) {
  const TensorSpec spec{Dtype::f32, {1, 4}};
  const Bytes a = bytes_of_hex("FFFF7F7F FFFF7FFF 0000C07F 0000803F");
  const Bytes b = bytes_of_hex("FFFF7F7F FFFF7FFF 0000803F 0000803F");
  for_each_target([&] {
    const Bytes sum = sum_of(AutoEncoder{4}, spec, a, b);
    EXPECT_EQ(hex_of(sum), "00 00 C0 7F 00 00 C0 7F 00 00 C0 7F 00 00 00 40");
  });
}

TEST(AddPayload, WhatDoesNotFitIsRefused) {
  const RandomK codec{{0.1, 0}, false, Raw{}};
  const Tensor x = tensor_of(Dtype::f32, {50}, normal_floats(50));
  Bytes sum = encoded(codec, x, {.seed = 1});
  const Bytes before = sum, other = encoded(codec, x, {.seed = 2});
  try {
    add_payload(codec, x.spec, sum, other);
    FAIL() << "two seeds were added";
  } catch (const WireError& error) {
    EXPECT_EQ(error.field(), "payload.seed");
  }
  EXPECT_EQ(sum, before);
  EXPECT_THROW(add_payload(codec, x.spec, sum, ByteView(other).first(12)), WireError);
}

// What is decoded is the tensor times its factors, for values that are not rounded.
TEST(KeptFactors, AreWhatDecodingDoesToEachElement) {
  for (const char* text : {"top_k:keep=0.1", "top_k:keep=0.6", "top_k:keep=1", "random_k:keep=0.2",
                           "random_k:keep=0.2,unbiased=true", "random_k:keep=1"}) {
    SCOPED_TRACE(text);
    const CodecSpec codec = parse_codec(text);
    ASSERT_TRUE(is_sparse(codec));
    std::vector<float> x = normal_floats(300);
    const Tensor tensor = tensor_of(Dtype::f32, {20, 15}, x);
    const Bytes payload = encoded(codec, tensor, {.seed = 3});
    std::vector<float> out(300), factors(300);
    decode(codec, payload, {.seed = 3}, {tensor.spec, out.data()});
    kept_factors(codec, tensor.spec, payload, factors);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(out[i], x[i] * factors[i]) << i;
  }
  // A zero that was kept counts as kept.
  const Tensor zeros = tensor_of(Dtype::f32, {4}, std::vector<float>(4, 0.0F));
  std::vector<float> factors(4);
  kept_factors(parse_codec("top_k:keep=0.5"), zeros.spec,
               encoded(parse_codec("top_k:keep=0.5"), zeros), factors);
  EXPECT_EQ(factors, (std::vector<float>{1, 1, 0, 0}));
  for (const char* text : {"raw", "quantise", "low_rank", "sign"})
    EXPECT_FALSE(is_sparse(parse_codec(text)));
}

}  // namespace
}  // namespace laconic
