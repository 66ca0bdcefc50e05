// codec/kernel/normal.cuh — normal draws of base/philox.hpp in kernels, to the same bits.
#pragma once

#include "laconic/base/quantile.hpp"
#include "laconic/codec/kernel/exact.hpp"

namespace laconic::kernel {

// The child of a key that is named by one number, as derive().
__device__ __forceinline__ Key child_key(Key parent, std::uint64_t a) {
  const exact::FourWords words = exact::philox_words(parent, a);
  return {words.at[0], words.at[1]};
}

// One number of a table: an array of constants has no place on a device.
template <const auto& kTable, int kIndex>
inline constexpr double kNumber = kTable[kIndex];

__device__ __forceinline__ double polynomial(double r, double a0, double a1, double a2, double a3,
                                             double a4, double a5, double a6, double a7) {
  double sum = a7;
  sum = sum * r + a6;
  sum = sum * r + a5;
  sum = sum * r + a4;
  sum = sum * r + a3;
  sum = sum * r + a2;
  sum = sum * r + a1;
  return sum * r + a0;
}

#define LACONIC_COEFFICIENTS(a)                                                             \
  kNumber<a, 0>, kNumber<a, 1>, kNumber<a, 2>, kNumber<a, 3>, kNumber<a, 4>, kNumber<a, 5>, \
      kNumber<a, 6>, kNumber<a, 7>

__device__ __forceinline__ double fixed_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t shifted = bits + quantile::kSqrtHalfCarry;
  const auto exponent = static_cast<std::int64_t>(shifted >> 52) - 1023;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = kNumber<quantile::kAtanh, 9> * z + kNumber<quantile::kAtanh, 8>;
  sum = sum * z + kNumber<quantile::kAtanh, 7>;
  sum = sum * z + kNumber<quantile::kAtanh, 6>;
  sum = sum * z + kNumber<quantile::kAtanh, 5>;
  sum = sum * z + kNumber<quantile::kAtanh, 4>;
  sum = sum * z + kNumber<quantile::kAtanh, 3>;
  sum = sum * z + kNumber<quantile::kAtanh, 2>;
  sum = sum * z + kNumber<quantile::kAtanh, 1>;
  const double series = sum * z + kNumber<quantile::kAtanh, 0>;
  return (s * z * series + s) * 2.0 + static_cast<double>(exponent) * quantile::kLn2;
}

__device__ __forceinline__ double inverse_normal_of(double p) {
  using namespace quantile;
  const double q = p - 0.5;
  if (fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(r, LACONIC_COEFFICIENTS(kA)) / polynomial(r, LACONIC_COEFFICIENTS(kB));
  }
  double r = sqrt(0.0 - fixed_log(q < 0 ? p : 1.0 - p));
  if (r <= 5.0) {
    r = r - 1.6;
    r = polynomial(r, LACONIC_COEFFICIENTS(kC)) / polynomial(r, LACONIC_COEFFICIENTS(kD));
  } else {
    r = r - 5.0;
    r = polynomial(r, LACONIC_COEFFICIENTS(kE)) / polynomial(r, LACONIC_COEFFICIENTS(kF));
  }
  return q < 0 ? -r : r;
}

// Normal number `index` of a key, mean 0 and deviation 1.
__device__ __forceinline__ double normal_at(Key key, std::uint64_t index) {
  const exact::FourWords words = exact::philox_words(key, index / 2);
  const std::uint32_t low = index % 2 == 0 ? words.at[0] : words.at[2];
  const std::uint32_t high = index % 2 == 0 ? words.at[1] : words.at[3];
  const std::uint64_t bits = std::uint64_t{high} << 32 | low;
  return inverse_normal_of((static_cast<double>(bits >> 11) + 0.5) * 0x1p-53);
}

}  // namespace laconic::kernel
