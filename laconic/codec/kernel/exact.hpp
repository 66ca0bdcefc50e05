// codec/kernel/exact.hpp — the arithmetic of the formats, number by number, for any compiler.
//
// What a scale, a level, a code or a 16-bit float is must not depend on who computes it: the CPU's
// sources and the kernels for GPUs (kernel/*.cu) both call these. Only operations that IEEE rounds
// to the last bit, in a fixed order and never fused: GPU kernels are compiled with --fmad=false,
// and with --ftz=true, because all codecs flush denormals. Comparisons and choices are of bits
// where NaN could come in.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "laconic/base/philox.hpp"
#include "laconic/codec/scale.hpp"
#include "laconic/codec/spec.hpp"

#ifdef __CUDACC__
#define LACONIC_BOTH __host__ __device__ __forceinline__
#else
#define LACONIC_BOTH inline
#endif

namespace laconic::exact {

inline constexpr std::uint32_t kSignBit = 0x80000000;
inline constexpr std::uint32_t kInfinity = 0x7F800000;
inline constexpr std::uint32_t kNan = 0x7FC00000;
inline constexpr std::uint32_t kMantissaBits = 23;
// Below 2^-100 a group counts as zero and above 2^125 it is cut off: in between no quotient or
// product of the arithmetic is denormal or overflows.
inline constexpr std::uint32_t kLeastScale = (127 - 100) << kMantissaBits;
inline constexpr std::uint32_t kLargestScale = (127 + 125) << kMantissaBits;
inline constexpr std::uint16_t kF16Infinity = 0x7C00;
inline constexpr std::uint16_t kF16Nan = 0x7E00;
inline constexpr std::uint16_t kF16Largest = 0x7BFF;
inline constexpr std::uint8_t kPow2Nan = 0xFF;
inline constexpr std::uint32_t kRebias = (127 - 15) << kMantissaBits;
// Where floats are the integers: adding it rounds to nearest, ties to even.
inline constexpr float kToInteger = 12582912.0f;

LACONIC_BOTH std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
LACONIC_BOTH float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
LACONIC_BOTH bool is_nan(float x) {
  return (bits_of(x) & ~kSignBit) > kInfinity;
}
LACONIC_BOTH bool is_finite(float x) {
  return (bits_of(x) & kInfinity) != kInfinity;
}
LACONIC_BOTH float canonical(float x) {
  return is_nan(x) ? float_of(kNan) : x;
}

// --- Philox, as base/philox.hpp: words 4 * block ... 4 * block + 3 of the key's stream.

struct FourWords {
  std::uint32_t at[4];
};

LACONIC_BOTH FourWords philox_words(Key key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c2 = 0;
  std::uint32_t c1 = static_cast<std::uint32_t>(block >> 32), c3 = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key.lo;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key.hi;
    c3 = static_cast<std::uint32_t>(p0);
    key.lo += 0x9E3779B9;
    key.hi += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// In [0, 1), for stochastic rounding.
LACONIC_BOTH float noise_of(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
}

// --- 16-bit floats, as codec/convert.hpp

LACONIC_BOTH std::uint16_t f16_of(float x) {
  const std::uint32_t all = bits_of(x), magnitude = all & ~kSignBit, sign = all >> 16 & 0x8000;
  if (magnitude > kInfinity) return kF16Nan;
  if (magnitude >= 143u << 23) return static_cast<std::uint16_t>(sign | kF16Infinity);
  // Adding 0.5, whose last place is the smallest f16, rounds those that become denormal.
  if (magnitude < 113u << 23)
    return static_cast<std::uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u));
  return static_cast<std::uint16_t>(sign |
                                    (magnitude - kRebias + 0xFFF + (magnitude >> 13 & 1)) >> 13);
}

LACONIC_BOTH float f32_of_f16(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7FFFu, sign = static_cast<std::uint32_t>(half & 0x8000)
                                                         << 16;
  if (magnitude > kF16Infinity) return float_of(kNan);
  if (magnitude == kF16Infinity) return float_of(kInfinity | sign);
  if (magnitude < 0x400)
    return float_of(bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f) |
                    sign);
  return float_of(((magnitude << 13) + kRebias) | sign);
}

LACONIC_BOTH std::uint16_t bf16_of(float x) {
  const std::uint32_t all = bits_of(canonical(x));
  return static_cast<std::uint16_t>((all + 0x7FFF + (all >> 16 & 1)) >> 16);
}

LACONIC_BOTH float f32_of_bf16(std::uint16_t half) {
  return canonical(float_of(static_cast<std::uint32_t>(half) << 16));
}

LACONIC_BOTH float f32_of_f64(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  if (magnitude > std::uint64_t{0x7FF0} << 48) return float_of(kNan);
  if (magnitude < std::uint64_t{1023 - 126} << 52)
    return float_of(static_cast<std::uint32_t>(bits >> 32) & kSignBit);
  return static_cast<float>(x);
}

LACONIC_BOTH double f64_of(float x) {
  const std::uint32_t bits = bits_of(x);
  if (is_nan(x)) return std::bit_cast<double>(std::uint64_t{0x7FF8} << 48);
  if ((bits & kInfinity) == 0)
    return std::bit_cast<double>(static_cast<std::uint64_t>(bits & kSignBit) << 32);
  return static_cast<double>(x);
}

// --- f16 for scales: magnitudes, as codec/scale.hpp

LACONIC_BOTH std::uint16_t f16_away_from_zero(float magnitude) {
  if (magnitude > 65504.0f) return kF16Largest;
  if (magnitude < 0x1p-14f) return static_cast<std::uint16_t>(ceilf(magnitude * 0x1p24f));
  return static_cast<std::uint16_t>((bits_of(magnitude) - kRebias + 0x1FFF) >> 13);
}

LACONIC_BOTH std::uint16_t f16_nearest(float magnitude) {
  if (magnitude >= 65520.0f) return kF16Infinity;
  if (magnitude < 0x1p-14f) return static_cast<std::uint16_t>(rintf(magnitude * 0x1p24f));
  const std::uint32_t bits = bits_of(magnitude) - kRebias;
  return static_cast<std::uint16_t>((bits + 0xFFF + (bits >> 13 & 1)) >> 13);
}

LACONIC_BOTH float f16_value(std::uint16_t half) {
  return (half & 0x7FFF) >= kF16Infinity ? float_of(kNan) : f32_of_f16(half);  // no infinity
}

// --- scales and levels

LACONIC_BOTH bool has_signed_scale(const Quantise& codec) {
  return codec.grid == Grid::tread && codec.scale != ScaleType::pow2;
}

// The magnitude as it will be read back.
LACONIC_BOTH float rounded_scale(const Quantise& codec, std::uint32_t magnitude) {
  const float value = float_of(magnitude);
  if (codec.grid == Grid::artefact) return f16_value(f16_nearest(value));  // NaN if infinite
  if (codec.scale == ScaleType::f16) return f16_value(f16_away_from_zero(value));
  constexpr std::uint32_t kMantissa = (1u << kMantissaBits) - 1;
  if (codec.scale == ScaleType::pow2) magnitude = (magnitude + kMantissa) & ~kMantissa;
  return float_of(magnitude < kLargestScale ? magnitude : kLargestScale);
}

// Without branches on the sign, which is as good as random.
LACONIC_BOTH float choose_scale(const Quantise& codec, Extremes extremes) {
  const auto magnitude = static_cast<std::uint32_t>(extremes.magnitude);
  if (magnitude >= kInfinity) return float_of(kNan);
  if (magnitude < kLeastScale) return 0;
  const bool is_turned = (extremes.highest == extremes.magnitude) & has_signed_scale(codec);
  return float_of(bits_of(rounded_scale(codec, magnitude)) ^ static_cast<std::uint32_t>(is_turned)
                                                                 << 31);
}

// The scale as it is stored, in the low scale_bytes() bytes.
LACONIC_BOTH std::uint32_t stored_scale(ScaleType type, float scale) {
  const std::uint32_t bits = bits_of(scale);
  if (type == ScaleType::f32) return is_nan(scale) ? kNan : bits;
  if (type == ScaleType::pow2) return is_nan(scale) ? kPow2Nan : bits >> kMantissaBits;
  return is_nan(scale) ? kF16Nan
                       : f16_nearest(float_of(bits & ~kSignBit)) | (bits & kSignBit) >> 16;
}

LACONIC_BOTH float loaded_scale(ScaleType type, std::uint32_t stored) {
  if (type == ScaleType::f32) return float_of(stored);
  if (type == ScaleType::f16) return f16_value(static_cast<std::uint16_t>(stored));
  return stored == kPow2Nan ? float_of(kNan) : float_of(stored << kMantissaBits);
}

// Without what only the sender needs.
LACONIC_BOTH Level decode_level(const Quantise& codec, float scale) {
  const bool is_ends = codec.grid == Grid::ends;
  const float half = static_cast<float>(1 << codec.bits) / 2;
  const float middle = is_ends ? half - 0.5f : half;  // H or L
  // Dead groups: a step of NaN makes all of them NaN.
  if (scale == 0 || is_nan(scale)) return {0, scale, is_ends ? 0 : middle};
  return {0, codec.grid == Grid::powers ? scale : scale / middle, middle};
}

LACONIC_BOTH Level encode_level(const Quantise& codec, float scale) {
  Level level = decode_level(codec, scale);
  if (scale == 0 || is_nan(scale)) return level;
  level.encode_factor = codec.grid == Grid::artefact ? f16_value(f16_nearest(scale + 1e-6f))
                        : codec.grid == Grid::powers ? 1.0f / scale
                                                     : level.middle / scale;
  return level;
}

// --- codes, as the vectors of kernel/level.cpp

// What is the same for all elements of a tensor.
struct Rule {
  Grid grid;
  bool is_stochastic;
  float low, high, to_integer, half;
};

LACONIC_BOTH Rule rule_of(const Quantise& codec) {
  const bool is_ends = codec.grid == Grid::ends;
  const float levels = static_cast<float>(1 << codec.bits);
  return {codec.grid,
          codec.rounding == Rounding::stochastic,
          is_ends ? 0.0f : -levels / 2,
          is_ends ? levels - 1 : levels / 2 - 1,
          is_ends ? kToInteger : kToInteger + levels / 2,
          levels / 2};
}

// to_integer plus the code without L: the low byte of its bits is the code.
LACONIC_BOTH float round_to_code(const Rule& rule, float v, const Level& level, float noise) {
  // Whatever a dead group holds, infinities and NaN too, gets the code of zero.
  const bool is_dead = level.encode_factor == 0;
  if (is_dead) v = 0;
  float y = rule.grid == Grid::artefact ? v / (is_dead ? 1.0f : level.encode_factor) * rule.half
                                        : v * level.encode_factor;
  if (rule.grid == Grid::ends) {
    y = y + level.middle;
    if (rule.is_stochastic) y = floorf(y + noise);
  }
  y = fminf(fmaxf(y, rule.low), rule.high);
  return y + rule.to_integer;
}

// The same for Grid::tread alone.
LACONIC_BOTH float round_to_tread(const Rule& rule, float v, const Level& level) {
  const float y = level.encode_factor == 0 ? 0.0f : v * level.encode_factor;
  return fminf(fmaxf(y, rule.low), rule.high) + rule.to_integer;
}

LACONIC_BOTH std::uint32_t code_of(float rounded) {
  return bits_of(rounded) & 0xFF;
}

LACONIC_BOTH float decoded(const Rule& rule, float rounded, const Level& level) {
  float q = rounded - rule.to_integer;
  if (rule.grid == Grid::ends) q = q - level.middle;
  return q * level.step;
}

// (code - middle) * step. The code comes to lie in the bits of 2^22 + code, whose last place is a
// half: what is subtracted, and what is left, are exact.
LACONIC_BOTH float decoded_code(std::uint32_t code, const Level& level) {
  const float q = float_of(0x4A800000u | code << 1) - (4194304.0f + level.middle);
  return canonical(q * level.step);
}

// --- others

// What top_k orders by, as kernel/candidate.hpp.
LACONIC_BOTH std::uint32_t rank_key(float x) {
  const std::uint32_t magnitude = bits_of(x) & ~kSignBit;
  if (magnitude < 0x00800000u) return 0;
  return magnitude < kInfinity + 1 ? magnitude : kInfinity + 1;
}

// The f32 nearest to size^(-1/2). Requires: size is a power of two.
LACONIC_BOTH float hadamard_norm(std::uint32_t log_size) {
  const float root = log_size % 2 == 0 ? 1.0f : static_cast<float>(0.70710678118654752440);
  return root * float_of((127u - log_size / 2) << kMantissaBits);
}

// The scale of the sign codec, from the sum of so many magnitudes.
LACONIC_BOTH float mean_magnitude(double total, std::uint64_t count) {
  const double mean = total / static_cast<double>(count);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(mean) & ~(std::uint64_t{1} << 63);
  if (bits >= std::uint64_t{0x7FF0} << 48) return float_of(kNan);
  return mean < 0x1p-126 ? 0.0f : static_cast<float>(mean);
}

// a + b with the NaN that x86 makes: its sign is encoded by sign.
LACONIC_BOTH float sum_of(float a, float b) {
  if (is_nan(a)) return float_of(bits_of(a) | 0x00400000u);
  if (is_nan(b)) return float_of(bits_of(b) | 0x00400000u);
  const float sum = a + b;
  return is_nan(sum) ? float_of(kSignBit | kNan) : sum;
}
LACONIC_BOTH float difference_of(float a, float b) {
  if (is_nan(a)) return float_of(bits_of(a) | 0x00400000u);
  if (is_nan(b)) return float_of(bits_of(b) | 0x00400000u);
  const float difference = a - b;
  return is_nan(difference) ? float_of(kSignBit | kNan) : difference;
}

}  // namespace laconic::exact
