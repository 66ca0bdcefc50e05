#include <bit>
#include <cmath>

#include "laconic/codec/reference/reference.hpp"
#include "laconic/codec/reference/reference_float.hpp"

namespace laconic::reference {

Bytes encode(const Half& codec, const TensorSpec&, const Floats& x, const CodecInput&) {
  Bytes payload;
  for (const float v : x) put(payload, narrowed(codec.kind, v));
  return payload;
}

Floats decode(const Half& codec, const TensorSpec&, ByteView payload, const CodecInput&) {
  Floats x;
  for (std::size_t at = 0; at < payload.size(); at += 2)
    x.push_back(widened(codec.kind, get<std::uint16_t>(payload, at)));
  return x;
}

namespace {

struct Format {
  int fraction_bits;
  int bias;
};

Format format_of(Dtype kind) {
  return kind == Dtype::f16 ? Format{10, 15} : Format{7, 127};
}

std::uint16_t largest_exponent(Dtype kind) {
  return static_cast<std::uint16_t>(2 * format_of(kind).bias + 1);
}

}  // namespace

// Arithmetic in integers and powers of two, so that flushing of denormals cannot matter.
float widened(Dtype kind, std::uint16_t bits) {
  const auto [fraction_bits, bias] = format_of(kind);
  const std::uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  if (exponent == largest_exponent(kind))
    return std::bit_cast<float>(fraction != 0 ? 0x7FC00000u : sign | 0x7F800000u);
  if (kind == Dtype::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024.0, exponent - 15 - 10);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(magnitude)) | sign);
}

// x = significand * 2^exponent; what the format has no room for is cut off and then made up for.
std::uint16_t narrowed(Dtype kind, float x) {
  const auto [fraction_bits, bias] = format_of(kind);
  const auto all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = all >> 16 & 0x8000u;
  const std::uint32_t magnitude = all & 0x7FFFFFFFu;
  const std::uint32_t infinity = std::uint32_t{largest_exponent(kind)} << fraction_bits;
  if (magnitude > 0x7F800000u)
    return static_cast<std::uint16_t>(infinity | 1u << (fraction_bits - 1));
  if (magnitude == 0x7F800000u) return static_cast<std::uint16_t>(sign | infinity);
  const int field = static_cast<int>(magnitude >> 23);
  std::uint64_t significand = (magnitude & 0x7FFFFFu) | (field > 0 ? 0x800000u : 0u);
  const int wanted = std::max(field, 1) - 127 + bias;  // its exponent field, if that is positive
  const int cut = std::min(23 - fraction_bits + (wanted < 1 ? 1 - wanted : 0), 60);
  const std::uint64_t rest = significand & ((std::uint64_t{1} << cut) - 1);
  const std::uint64_t half = std::uint64_t{1} << (cut - 1);
  significand >>= cut;
  if (rest > half || (rest == half && significand % 2 == 1)) ++significand;
  // The leading bit of the significand adds one to the exponent field, as does a carry.
  const std::uint64_t result =
      significand + (static_cast<std::uint64_t>(std::max(wanted, 1) - 1) << fraction_bits);
  return static_cast<std::uint16_t>(sign | std::min<std::uint64_t>(result, infinity));
}

}  // namespace laconic::reference
