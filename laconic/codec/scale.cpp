#include "laconic/codec/scale.hpp"

#include <cstring>

#include "laconic/codec/kernel/exact.hpp"

namespace laconic {

namespace {

const char* refuse_f32(std::uint32_t bits, bool is_signed) {
  const std::uint32_t magnitude = bits & ~exact::kSignBit;
  if (bits == 0 || bits == exact::kNan) return nullptr;
  if (magnitude > exact::kInfinity) return "a NaN other than 7fc00000";
  if (magnitude == exact::kInfinity) return "infinite";
  if (magnitude > exact::kLargestScale) return "above 2^125";
  if (magnitude == 0) return "a negative zero";
  if (magnitude < exact::kLeastScale) return "not zero but below 2^-100";
  return !is_signed && bits != magnitude ? "negative" : nullptr;
}

const char* refuse_f16(std::uint16_t bits, bool is_signed) {
  const std::uint16_t magnitude = bits & 0x7FFF;
  if (bits == 0 || bits == exact::kF16Nan) return nullptr;
  if (magnitude > exact::kF16Infinity) return "a NaN other than 7e00";
  if (magnitude == exact::kF16Infinity) return "infinite";
  if (magnitude == 0) return "a negative zero";
  return !is_signed && bits != magnitude ? "negative" : nullptr;
}

const char* refuse_pow2(std::uint8_t exponent) {
  if (exponent == 0 || exponent == exact::kPow2Nan) return nullptr;
  if (exponent < exact::kLeastScale >> exact::kMantissaBits) return "not zero but below 2^-100";
  return exponent > exact::kLargestScale >> exact::kMantissaBits ? "above 2^125" : nullptr;
}

template <class T>
T read(const std::byte* in) {
  return get<T>({in, sizeof(T)}, 0);
}

// Little-endian: the low bytes come first. Of fixed sizes, or every one would be a call.
void store_scale(ScaleType type, std::uint32_t stored, std::byte* out) {
  switch (type) {
    case ScaleType::f32: return void(std::memcpy(out, &stored, 4));
    case ScaleType::f16: return void(std::memcpy(out, &stored, 2));
    case ScaleType::pow2: return void(std::memcpy(out, &stored, 1));
  }
}

}  // namespace

std::uint16_t f16_away_from_zero(float magnitude) {
  return exact::f16_away_from_zero(magnitude);
}

std::uint16_t f16_nearest(float magnitude) {
  return exact::f16_nearest(magnitude);
}

float f16_value(std::uint16_t half) {
  return exact::f16_value(half);
}

std::size_t scale_bytes(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type == ScaleType::f16 ? 2 : 1;
}

float load_scale(ScaleType type, const std::byte* in) {
  switch (type) {
    case ScaleType::f32: return exact::loaded_scale(type, read<std::uint32_t>(in));
    case ScaleType::f16: return exact::loaded_scale(type, read<std::uint16_t>(in));
    case ScaleType::pow2: break;
  }
  return exact::loaded_scale(type, read<std::uint8_t>(in));
}

void store_scales(const Quantise& codec, const Extremes* extremes, std::size_t count,
                  std::byte* out, Level* levels) {
  for (std::size_t i = 0; i < count; ++i, out += scale_bytes(codec.scale)) {
    const float scale = exact::choose_scale(codec, extremes[i]);
    store_scale(codec.scale, exact::stored_scale(codec.scale, scale), out);
    levels[i] = exact::encode_level(codec, scale);
  }
}

void load_levels(const Quantise& codec, const std::byte* in, std::size_t count, Level* levels) {
  for (std::size_t i = 0; i < count; ++i, in += scale_bytes(codec.scale))
    levels[i] = exact::decode_level(codec, load_scale(codec.scale, in));
}

std::uint8_t dead_code(const Quantise& codec) {
  return codec.grid == Grid::ends ? 0 : static_cast<std::uint8_t>(1 << (codec.bits - 1));
}

const char* refuse_scale(const Quantise& codec, const std::byte* in) {
  const bool is_signed = exact::has_signed_scale(codec);
  switch (codec.scale) {
    case ScaleType::f32: return refuse_f32(read<std::uint32_t>(in), is_signed);
    case ScaleType::f16: return refuse_f16(read<std::uint16_t>(in), is_signed);
    case ScaleType::pow2: return refuse_pow2(read<std::uint8_t>(in));
  }
  return nullptr;
}

}  // namespace laconic
