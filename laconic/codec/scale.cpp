#include "laconic/codec/scale.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace laconic {

namespace {

constexpr std::uint32_t kMantissaBits = 23;
constexpr std::uint32_t kSignBit = 0x80000000;
constexpr std::uint32_t kInfinity = 0x7F800000;
constexpr std::uint32_t kCanonicalNan = 0x7FC00000;
// Below 2^-100 a group counts as zero and above 2^125 it is cut off: in between no quotient or
// product of the arithmetic is denormal or overflows.
constexpr std::uint32_t kLeastScale = (127 - 100) << kMantissaBits;
constexpr std::uint32_t kLargestScale = (127 + 125) << kMantissaBits;

constexpr std::uint16_t kF16Infinity = 0x7C00;
constexpr std::uint16_t kF16Nan = 0x7E00;
constexpr std::uint16_t kF16Largest = 0x7BFF;
constexpr std::uint8_t kPow2Nan = 0xFF;
constexpr float kF16Unit = 0x1p-24f;  // the smallest f16 that is not zero
constexpr float kF16LeastNormal = 0x1p-14f;
constexpr std::uint32_t kRebias = (127 - 15) << kMantissaBits;
constexpr float kArtefactEpsilon = 1e-6f;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
static_assert(std::bit_cast<std::uint32_t>(kNan) == kCanonicalNan);

bool has_signed_scale(const Quantise& codec) {
  return codec.grid == Grid::tread && codec.scale != ScaleType::pow2;
}

// The magnitude as it will be read back.
float rounded_scale(const Quantise& codec, std::uint32_t magnitude) {
  const float value = std::bit_cast<float>(magnitude);
  if (codec.grid == Grid::artefact) return f16_value(f16_nearest(value));  // NaN if infinite
  switch (codec.scale) {
    case ScaleType::f32: return std::bit_cast<float>(std::min(magnitude, kLargestScale));
    case ScaleType::f16: return f16_value(f16_away_from_zero(value));
    case ScaleType::pow2: {
      const std::uint32_t mantissa = (1u << kMantissaBits) - 1;
      return std::bit_cast<float>(std::min((magnitude + mantissa) & ~mantissa, kLargestScale));
    }
  }
  return kNan;
}

const char* refuse_f32(std::uint32_t bits, bool is_signed) {
  const std::uint32_t magnitude = bits & ~kSignBit;
  if (bits == 0 || bits == kCanonicalNan) return nullptr;
  if (magnitude > kInfinity) return "a NaN other than 7fc00000";
  if (magnitude == kInfinity) return "infinite";
  if (magnitude > kLargestScale) return "above 2^125";
  if (magnitude == 0) return "a negative zero";
  if (magnitude < kLeastScale) return "not zero but below 2^-100";
  return !is_signed && bits != magnitude ? "negative" : nullptr;
}

const char* refuse_f16(std::uint16_t bits, bool is_signed) {
  const std::uint16_t magnitude = bits & 0x7FFF;
  if (bits == 0 || bits == kF16Nan) return nullptr;
  if (magnitude > kF16Infinity) return "a NaN other than 7e00";
  if (magnitude == kF16Infinity) return "infinite";
  if (magnitude == 0) return "a negative zero";
  return !is_signed && bits != magnitude ? "negative" : nullptr;
}

const char* refuse_pow2(std::uint8_t exponent) {
  if (exponent == 0 || exponent == kPow2Nan) return nullptr;
  if (exponent < kLeastScale >> kMantissaBits) return "not zero but below 2^-100";
  return exponent > kLargestScale >> kMantissaBits ? "above 2^125" : nullptr;
}

template <class T>
T read(const std::byte* in) {
  return get<T>({in, sizeof(T)}, 0);
}

template <class T>
void write(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}

// Without branches on the sign, which is as good as random.
float choose_scale(const Quantise& codec, Extremes extremes) {
  const auto magnitude = static_cast<std::uint32_t>(extremes.magnitude);
  if (magnitude >= kInfinity) return kNan;
  if (magnitude < kLeastScale) return 0;
  const auto scale = std::bit_cast<std::uint32_t>(rounded_scale(codec, magnitude));
  const bool is_positive = extremes.highest == extremes.magnitude;
  const bool is_turned = is_positive & has_signed_scale(codec);
  return std::bit_cast<float>(scale ^ static_cast<std::uint32_t>(is_turned) << 31);
}

void store_scale(ScaleType type, float scale, std::byte* out) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const bool is_nan = scale != scale;
  if (type == ScaleType::f32) return write(is_nan ? kCanonicalNan : bits, out);
  if (type == ScaleType::pow2)
    return write(is_nan ? kPow2Nan : static_cast<std::uint8_t>(bits >> kMantissaBits), out);
  const auto sign = static_cast<std::uint16_t>((bits & kSignBit) >> 16);
  write(is_nan ? kF16Nan : static_cast<std::uint16_t>(f16_nearest(std::abs(scale)) | sign), out);
}

// Without what only the sender needs.
Level decode_level(const Quantise& codec, float scale) {
  const bool is_ends = codec.grid == Grid::ends;
  const float half = static_cast<float>(1 << codec.bits) / 2;
  const float middle = is_ends ? half - 0.5f : half;  // H or L
  // Dead groups: a step of NaN makes all of them NaN.
  if (scale == 0 || scale != scale) return {0, scale, is_ends ? 0 : middle};
  return {0, scale / middle, middle};
}

Level encode_level(const Quantise& codec, float scale) {
  Level level = decode_level(codec, scale);
  if (scale == 0 || scale != scale) return level;
  level.encode_factor = codec.grid == Grid::artefact
                            ? f16_value(f16_nearest(scale + kArtefactEpsilon))
                            : level.middle / scale;
  return level;
}

}  // namespace

std::uint16_t f16_away_from_zero(float magnitude) {
  if (magnitude > 65504.0f) return kF16Largest;
  if (magnitude < kF16LeastNormal)
    return static_cast<std::uint16_t>(std::ceil(magnitude / kF16Unit));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude) - kRebias;
  return static_cast<std::uint16_t>((bits + 0x1FFF) >> 13);
}

std::uint16_t f16_nearest(float magnitude) {
  if (magnitude >= 65520.0f) return kF16Infinity;
  if (magnitude < kF16LeastNormal)
    return static_cast<std::uint16_t>(std::lrint(magnitude / kF16Unit));  // ties to even
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude) - kRebias;
  return static_cast<std::uint16_t>((bits + 0xFFF + ((bits >> 13) & 1)) >> 13);
}

float f16_value(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= kF16Infinity) return kNan;  // we write no infinity
  if (magnitude < 0x0400) {
    const float value = static_cast<float>(magnitude) * kF16Unit;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(((magnitude << 13) + kRebias) | sign);
}

std::size_t scale_bytes(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type == ScaleType::f16 ? 2 : 1;
}

float load_scale(ScaleType type, const std::byte* in) {
  if (type == ScaleType::f32) return read<float>(in);
  if (type == ScaleType::f16) return f16_value(read<std::uint16_t>(in));
  const auto exponent = read<std::uint8_t>(in);
  if (exponent == kPow2Nan) return kNan;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << kMantissaBits);
}

void store_scales(const Quantise& codec, const Extremes* extremes, std::size_t count,
                  std::byte* out, Level* levels) {
  for (std::size_t i = 0; i < count; ++i, out += scale_bytes(codec.scale)) {
    const float scale = choose_scale(codec, extremes[i]);
    store_scale(codec.scale, scale, out);
    levels[i] = encode_level(codec, scale);
  }
}

void load_levels(const Quantise& codec, const std::byte* in, std::size_t count, Level* levels) {
  for (std::size_t i = 0; i < count; ++i, in += scale_bytes(codec.scale))
    levels[i] = decode_level(codec, load_scale(codec.scale, in));
}

std::uint8_t dead_code(const Quantise& codec) {
  return codec.grid == Grid::ends ? 0 : static_cast<std::uint8_t>(1 << (codec.bits - 1));
}

const char* refuse_scale(const Quantise& codec, const std::byte* in) {
  const bool is_signed = has_signed_scale(codec);
  switch (codec.scale) {
    case ScaleType::f32: return refuse_f32(read<std::uint32_t>(in), is_signed);
    case ScaleType::f16: return refuse_f16(read<std::uint16_t>(in), is_signed);
    case ScaleType::pow2: return refuse_pow2(read<std::uint8_t>(in));
  }
  return nullptr;
}

}  // namespace laconic
