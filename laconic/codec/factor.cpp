#include "laconic/codec/factor.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"

namespace laconic {

namespace {

// op(exponent bits, canonical NaN) with the bits' own type.
template <class Op>
auto with_bits(Dtype dtype, const Op& op) {
  switch (dtype) {
    case Dtype::f32: return op(std::uint32_t{0x7F800000}, std::uint32_t{0x7FC00000});
    case Dtype::f16: return op(std::uint16_t{0x7C00}, std::uint16_t{0x7E00});
    default: break;
  }
  LACONIC_ASSERT(dtype == Dtype::bf16, std::string(name_of(dtype)));
  return op(std::uint16_t{0x7F80}, std::uint16_t{0x7FC0});
}

template <class Bits>
Bits load(const std::byte* values, std::size_t i) {
  Bits bits;
  std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
  return bits;
}

}  // namespace

void put_factors(Dtype dtype, const float* in, std::size_t count, std::byte* out) {
  if (count == 0) return;
  if (dtype == Dtype::f32)
    std::memcpy(out, in, count * sizeof(float));
  else
    narrow_bytes(dtype, in, count, out);
}

void get_factors(Dtype dtype, const std::byte* in, std::size_t count, float* out) {
  if (count == 0) return;
  if (dtype == Dtype::f32)
    std::memcpy(out, in, count * sizeof(float));
  else
    widen_bytes(dtype, in, count, out);
}

void fill_nan(Dtype dtype, std::size_t count, std::byte* out) {
  with_bits(dtype, [&](auto, auto nan) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * sizeof nan, &nan, sizeof nan);
  });
}

void settle_nan(Dtype dtype, std::size_t count, std::byte* values) {
  with_bits(dtype, [&](auto exponent, auto nan) {
    for (std::size_t i = 0; i < count; ++i)
      if ((load<decltype(nan)>(values, i) & exponent) == exponent)
        std::memcpy(values + i * sizeof nan, &nan, sizeof nan);
  });
}

FactorCount count_factors(Dtype dtype, const std::byte* values, std::size_t count) {
  FactorCount found;
  with_bits(dtype, [&](auto exponent, auto nan) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = load<decltype(nan)>(values, i);
      if ((bits & exponent) != exponent) continue;
      const bool is_canonical = bits == nan;
      ++(is_canonical ? found.nan : found.unfit);
      std::size_t& first = is_canonical ? found.first_nan : found.first_unfit;
      first = std::min(first, i);
    }
  });
  return found;
}

}  // namespace laconic
