// What the quantise codec promises about the numbers: bounds, means, and what broken ones touch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/codec/device_codec.hpp"
#include "laconic/codec/test_quantise.hpp"

namespace laconic {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Quantise codec_of(const char* text, int bits) {
  auto codec = std::get<Quantise>(parse_codec(text));
  codec.bits = bits;
  return codec;
}

float largest_magnitude(const Floats& x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// The scale is the largest element or what it is rounded to.
float scale_bound(const Quantise& codec, float largest) {
  if (codec.scale == ScaleType::f16) return largest * (1 + 0x1p-10f) + 0x1p-24f;
  return codec.scale == ScaleType::pow2 ? std::exp2(std::ceil(std::log2(largest))) : largest;
}

// Half a step, or a whole one beyond the last level: that of the sign which -L does not have. The
// artefact divides by the scale and a millionth, and multiplies by the scale, which is rounded to
// the nearest half and may so be below the largest element.
void expect_within_bounds(const Quantise& codec, const Floats& x, const Floats& y) {
  const float levels = static_cast<float>(1 << codec.bits) / 2;
  const bool is_ends = codec.grid == Grid::ends;
  const float largest = largest_magnitude(x), scale = scale_bound(codec, largest);
  const float step = scale / (is_ends ? levels - 0.5f : levels);
  const float parts = codec.rounding == Rounding::stochastic ? 1.0f : 0.5f;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool may_be_cut = !is_ends && std::abs(x[i]) > largest * (0.9999f - 0.5f / levels);
    const float beside = codec.grid == Grid::artefact ? 1e-6f + largest * 0x1p-11f : 0.0f;
    const float bound = step * (may_be_cut ? 1.0f : parts) * 1.0001f + scale * 1e-6f + beside;
    ASSERT_LE(std::abs(x[i] - y[i]), bound) << i << ": " << x[i] << " became " << y[i];
  }
}

void expect_within_bounds(const Quantise& codec, const Floats& x) {
  expect_within_bounds(codec, x, passed(codec, vector_of(x.size()), x));
}

TEST(QuantiseNumbers, ErrorsStayWithinHalfAStep) {
  for (int bits = 1; bits <= 8; ++bits)
    for (const char* text :
         {"quantise", "quantise:scale=f16", "quantise:scale=pow2", "quantise:grid=ends",
          "quantise:grid=ends,scale=f16", "quantise:grid=ends,rounding=stochastic"})
      for (const double deviation : {1e-7, 1e-3, 1.0, 1e3}) {
        const Quantise codec = codec_of(text, bits);
        if (!check(codec).empty()) continue;
        SCOPED_TRACE(to_text(codec));
        Floats x = normal_data(256, deviation);
        ASSERT_NO_FATAL_FAILURE(expect_within_bounds(codec, x));
        x[77] = static_cast<float>(50 * deviation);
        ASSERT_NO_FATAL_FAILURE(expect_within_bounds(codec, x));
      }
}

// Of columns that differ by orders of magnitude each has its own step.
TEST(QuantiseNumbers, ErrorsOfAChannelStayWithinHalfAStepOfItsOwn) {
  constexpr std::int64_t kRows = 48, kChannels = 8;
  Floats x = normal_data(kRows * kChannels, 1.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= std::pow(10.0f, static_cast<float>(i % kChannels) - 4);
  for (int bits = 1; bits <= 8; ++bits)
    for (const char* text :
         {"quantise:group=channel", "quantise:group=channel,scale=f16",
          "quantise:group=channel,grid=ends", "quantise:group=channel,scale=f16,grid=artefact"}) {
      const Quantise codec = codec_of(text, bits);
      if (!check(codec).empty()) continue;
      SCOPED_TRACE(to_text(codec));
      const Floats y = passed(codec, {Dtype::f32, {kRows, kChannels}}, x);
      for (std::size_t c = 0; c < kChannels; ++c) {
        SCOPED_TRACE(c);
        Floats before, after;
        for (std::size_t i = c; i < x.size(); i += kChannels) {
          before.push_back(x[i]);
          after.push_back(y[i]);
        }
        ASSERT_NO_FATAL_FAILURE(expect_within_bounds(codec, before, after));
      }
    }
}

TEST(QuantiseNumbers, TheLargestElementIsExact) {
  for (int bits = 2; bits <= 8; ++bits)
    for (const Grid grid : {Grid::tread, Grid::powers})
      for (const float sign : {1.0f, -1.0f}) {
        const Quantise codec{.bits = bits, .grid = grid};
        if (!check(codec).empty()) continue;
        Floats x = normal_data(256);
        x[100] = 5.3f * sign;
        EXPECT_EQ(passed(codec, vector_of(256), x)[100], x[100]);
      }
}

// No level is nearer than the one that is taken; so down to three quarters of the least, nothing
// changes by more than a third.
TEST(QuantiseNumbers, PowersAreTheNearest) {
  for (int bits = 2; bits <= 5; ++bits)
    for (const char* text :
         {"quantise:bits=4,grid=powers", "quantise:bits=4,grid=powers,scale=pow2"}) {
      const Quantise codec = codec_of(text, bits);
      SCOPED_TRACE(to_text(codec));
      const Floats x = normal_data(4000), y = passed(codec, vector_of(4000), x);
      for (std::size_t block = 0; block < x.size(); block += 256) {
        const std::size_t end = std::min(x.size(), block + 256);
        float scale = largest_magnitude({x.begin() + static_cast<std::ptrdiff_t>(block),
                                         x.begin() + static_cast<std::ptrdiff_t>(end)});
        if (codec.scale == ScaleType::pow2) scale = std::exp2(std::ceil(std::log2(scale)));
        Floats levels{0};
        for (int k = 0; k < (1 << (bits - 1)) - 1; ++k)
          for (const float sign : {1.0f, -1.0f}) levels.push_back(std::ldexp(sign * scale, -k));
        const float least = levels.back() * -0.75f;
        for (std::size_t i = block; i < end; ++i) {
          ASSERT_NE(std::ranges::find(levels, y[i]), levels.end()) << y[i];
          for (const float level : levels)
            ASSERT_LE(std::abs(x[i] - y[i]), std::abs(x[i] - level) * 1.00001f + scale * 1e-7f);
          if (std::abs(x[i]) < least) continue;
          ASSERT_LE(std::abs(x[i] - y[i]), std::abs(x[i]) * 0.33334f);
        }
      }
    }
}

TEST(QuantiseNumbers, PowersAreForHostsAlone) {
  for (const char* text : {"quantise:bits=4,grid=powers", "top_k+quantise:bits=4,grid=powers",
                           "random_k+quantise:bits=4,grid=powers"})
    EXPECT_EQ(to_text(check_device(parse_codec(text), vector_of(8))),
              "quantise.grid: grid=powers has kernels for processors alone")
        << text;
  EXPECT_TRUE(check_device(parse_codec("top_k+quantise:bits=4"), vector_of(8)).empty());
}

TEST(QuantiseNumbers, TwoBitsOfTheArtefact) {
  const Quantise codec = codec_of("quantise:group=channel,scale=f16,grid=artefact", 2);
  const Floats x{-1, -.5f, -.25f, 0, .25f, .5f, 1};
  for (const float scale : {1.0f, 0.125f, 48.0f}) {
    Floats scaled = x;
    for (float& value : scaled) value *= scale;
    Floats y = passed(codec, {Dtype::f32, {7, 1}}, scaled);
    for (float& value : y) value /= scale;
    EXPECT_EQ(y, (Floats{-1, -.5f, 0, 0, 0, .5f, .5f}));
  }
}

// --- what is not finite

TEST(QuantiseNumbers, WhatIsNotFinitePoisonsItsGroupOnly) {
  for (const char* text :
       {"quantise:block=64", "quantise:block=64,scale=f16", "quantise:block=64,scale=pow2",
        "quantise:bits=4,block=64,grid=powers", "quantise:block=64,grid=ends",
        "quantise:block=64,grid=ends,rounding=stochastic", "quantise:block=64,rotate=true"})
    for (const float broken : {kNan, kInfinity, -kInfinity}) {
      const Quantise codec = codec_of(text, 4);
      SCOPED_TRACE(to_text(codec));
      const Floats x = normal_data(256);
      Floats damaged = x;
      damaged[130] = broken;
      const Floats y = passed(codec, vector_of(256), x), z = passed(codec, vector_of(256), damaged);
      for (std::size_t i = 0; i < 256; ++i) {
        if (i / 64 == 2)
          EXPECT_TRUE(std::isnan(z[i])) << i;
        else
          EXPECT_EQ(y[i], z[i]) << i;
      }
    }
}

TEST(QuantiseNumbers, WhatIsNotFinitePoisonsItsChannelOnly) {
  const Quantise codec = codec_of("quantise:group=channel", 4);
  Floats x = normal_data(60);
  x[23] = kInfinity;
  const Floats y = passed(codec, {Dtype::f32, {12, 5}}, x);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i % 5 == 3) << i;
}

TEST(QuantiseNumbers, TheArtefactOverflowsToNan) {
  const Quantise codec = codec_of("quantise:group=channel,scale=f16,grid=artefact", 8);
  const Floats y = passed(codec, {Dtype::f32, {1, 3}}, {65519, 65520, -1e30f});
  EXPECT_FALSE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(QuantiseNumbers, HugeNumbersAreCutOff) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(passed({.bits = 2}, vector_of(2), {largest, -largest}), (Floats{0x1p125f, -0x1p124f}));
  for (int bits = 1; bits <= 8; ++bits)
    EXPECT_EQ(passed({.bits = bits, .grid = Grid::ends}, vector_of(2), {largest, -largest}),
              (Floats{0x1p125f, -0x1p125f}));
  const Quantise half{.scale = ScaleType::f16, .grid = Grid::ends};
  EXPECT_FLOAT_EQ(passed(half, vector_of(2), {1e30f, 0}).front(), 65504.0f);
}

// --- errors on normal data

double relative_error(const Floats& x, const Floats& y) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double{x[i]} - y[i], 2);
    norm += std::pow(double{x[i]}, 2);
  }
  return std::sqrt(error / norm);
}

double relative_error(const Quantise& codec) {
  const TensorSpec tensor{Dtype::f32, {1024, 256}};  // 1024 elements per scale
  const Floats x = normal_data(1024 * 256);
  return relative_error(x, passed(codec, tensor, x));
}

struct Expected {
  int bits;
  double error;
};

TEST(QuantiseNumbers, TheArtefactHasTheErrorsOfThePaper) {
  for (const auto [bits, error] : {Expected{2, .50}, {3, .25}, {4, .126}, {6, .031}, {8, .0078}})
    EXPECT_NEAR(
        relative_error(codec_of("quantise:group=channel,scale=f16,grid=artefact", bits)) / error, 1,
        .03)
        << bits;
}

// The study of compression in model parallelism: channels of 16,384 tokens, mean square errors.
TEST(QuantiseNumbers, TheArtefactHasTheErrorsOfTheStudy) {
  const TensorSpec tensor{Dtype::f32, {16384, 16}};
  const Floats x = normal_data(16384 * 16);
  for (const auto [bits, mean_square] : {Expected{2, .33}, {4, .020}, {8, 1e-4}}) {
    const Quantise codec = codec_of("quantise:group=channel,scale=f16,grid=artefact", bits);
    EXPECT_NEAR(std::pow(relative_error(x, passed(codec, tensor, x)), 2) / mean_square, 1, .2)
        << bits;
  }
}

TEST(QuantiseNumbers, StochasticRoundingHasTwiceTheError) {
  for (const auto [bits, error] : {Expected{2, .95}, {3, .40}, {4, .19}, {6, .045}, {8, .0112}})
    EXPECT_NEAR(
        relative_error(codec_of("quantise:group=channel,grid=ends,rounding=stochastic", bits)) /
            error,
        1, .03)
        << bits;
}

TEST(QuantiseNumbers, TreadHasTheErrorsOfTheArtefact) {
  for (const auto [bits, error] : {Expected{2, .50}, {3, .25}, {4, .126}, {6, .031}, {8, .0078}})
    EXPECT_NEAR(relative_error(codec_of("quantise:group=channel", bits)) / error, 1, .03) << bits;
}

// Steps are larger by 2^bits / (2^bits - 1), and with few bits zero lies far from a level.
TEST(QuantiseNumbers, EndsRoundedToNearest) {
  for (const auto [bits, error] : {Expected{2, .68}, {3, .285}, {4, .133}, {6, .0315}, {8, .0078}})
    EXPECT_NEAR(relative_error(codec_of("quantise:group=channel,grid=ends", bits)) / error, 1, .03)
        << bits;
}

// A spike of 100 deviations in every block spoils its scale, unless it is rotated away.
TEST(QuantiseNumbers, RotationSpreadsOutliers) {
  Floats x = normal_data(1 << 14);
  for (std::size_t i = 0; i < x.size(); i += 256) x[i + 5] = 100;
  const auto error_without_spikes = [&](const char* text) {
    const Floats y = passed(codec_of(text, 4), vector_of(x.size()), x);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (x[i] != 100) sum += std::pow(double{x[i]} - y[i], 2);
    return std::sqrt(sum / static_cast<double>(x.size()));
  };
  EXPECT_GT(error_without_spikes("quantise"), 0.9);
  EXPECT_LT(error_without_spikes("quantise:rotate=true"), 0.7);
}

// --- stochastic rounding

TEST(QuantiseNumbers, StochasticRoundingIsRightInTheMean) {
  const Floats x{1, -1, .3f, -.77f, .01f, 0, .5f, -.123f};
  constexpr int kDraws = 10000;
  for (const int bits : {1, 2, 4}) {
    const Quantise codec = codec_of("quantise:grid=ends,rounding=stochastic", bits);
    std::vector<double> sums(x.size()), squares(x.size());
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      const Floats y = passed(codec, vector_of(x.size()), x, seed);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sums[i] += y[i];
        squares[i] += std::pow(double{y[i]} - x[i], 2);
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double deviation = std::sqrt(squares[i] / kDraws);
      EXPECT_NEAR(sums[i] / kDraws, x[i], 4 * deviation / std::sqrt(kDraws) + 1e-6)
          << bits << " bits, " << x[i];
    }
  }
}

TEST(QuantiseNumbers, SeedsMatterOnlyWhereRandomnessIs) {
  const TensorSpec tensor = vector_of(500);
  const Floats x = normal_data(500);
  const auto is_seeded = [&](const char* text) {
    const Quantise codec = codec_of(text, 4);
    EXPECT_EQ(encoded(codec, tensor, x, 1), encoded(codec, tensor, x, 1)) << text;
    return encoded(codec, tensor, x, 1) != encoded(codec, tensor, x, 2);
  };
  EXPECT_FALSE(is_seeded("quantise"));
  EXPECT_FALSE(is_seeded("quantise:grid=ends"));
  EXPECT_TRUE(is_seeded("quantise:grid=ends,rounding=stochastic"));
  EXPECT_TRUE(is_seeded("quantise:rotate=true"));
}

// --- memories

TEST(QuantiseNumbers, NoDifferenceChangesNothing) {
  for (int bits = 1; bits <= 8; ++bits)
    for (const char* text : {"quantise", "quantise:grid=ends", "quantise:group=channel,scale=f16",
                             "quantise:grid=ends,rounding=stochastic,scale=pow2"}) {
      const Quantise codec = codec_of(text, bits);
      if (!check(codec).empty()) continue;
      const TensorSpec tensor{Dtype::f32, {10, 100}};
      const Floats x = normal_data(1000);
      Floats after(1000);
      Bytes payload(max_payload_bytes(codec, tensor));
      encode_difference(codec, {tensor, x.data()}, x.data(), after.data(), {}, payload);
      EXPECT_EQ(bits_of(after), bits_of(x));
      EXPECT_EQ(payload, encoded(codec, tensor, Floats(1000, 0.0f)));
      Floats received(1000);
      decode_difference(codec, payload, x.data(), received.data(), {}, {tensor, nullptr});
      EXPECT_EQ(bits_of(received), bits_of(x));
    }
}

TEST(QuantiseNumbers, WithFeedbackNothingIsLost) {
  const Quantise codec{.bits = 2, .grid = Grid::ends};
  const TensorSpec tensor = vector_of(300);
  std::vector<double> sent(300), wanted(300);
  Floats residual(300);
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Floats x = normal_data(300, 1, step);
    Bytes payload(max_payload_bytes(codec, tensor));
    encode_with_feedback(codec, {tensor, x.data()}, residual.data(), residual.data(), {}, payload);
    const Floats y = decoded(codec, tensor, payload);
    for (std::size_t i = 0; i < 300; ++i) {
      sent[i] += y[i];
      wanted[i] += x[i];
    }
  }
  for (std::size_t i = 0; i < 300; ++i) EXPECT_NEAR(sent[i] + residual[i], wanted[i], 1e-4);
}

}  // namespace
}  // namespace laconic
