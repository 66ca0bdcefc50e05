#include "laconic/base/philox.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/quantile.hpp"

namespace laconic {

PhiloxBlock philox(PhiloxBlock c, Key key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key.lo, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key.hi, static_cast<std::uint32_t>(p0)};
    key.lo += 0x9E3779B9;
    key.hi += 0xBB67AE85;
  }
  return c;
}

Key key_of(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

Key derive(Key parent, std::uint64_t a, std::uint64_t b) {
  const PhiloxBlock child =
      philox({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
              static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)},
             parent);
  return {child[0], child[1]};
}

Key derive(Key parent, std::string_view name) {
  // FNV-1a: a fixed, well-known map from text to a number; Philox does the mixing.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return derive(parent, hash, name.size());
}

std::uint32_t word_at(Key key, std::uint64_t index) {
  const std::uint64_t block = index / 4;
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                key)[index % 4];
}

double uniform_at(Key key, std::uint64_t index) {
  const std::uint64_t bits =
      std::uint64_t{word_at(key, 2 * index + 1)} << 32 | word_at(key, 2 * index);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

namespace {

// a[0] + r (a[1] + r (a[2] + ...)), a multiply and an add at a time.
double polynomial(const double (&a)[8], double r) {
  double sum = a[7];
  for (int i = 6; i >= 0; --i) sum = sum * r + a[i];
  return sum;
}

// Natural logarithm of a positive normal number by the atanh series; the vector kernel does the
// same.
double fixed_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // Adding this carries mantissas above sqrt(2) into the exponent, so m lies in [sqrt(1/2),
  // sqrt(2)).
  const std::uint64_t shifted = bits + quantile::kSqrtHalfCarry;
  const auto exponent = static_cast<std::int64_t>(shifted >> 52) - 1023;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = quantile::kAtanh[9];
  for (int i = 8; i >= 0; --i) series = series * z + quantile::kAtanh[i];
  return (s * z * series + s) * 2.0 + static_cast<double>(exponent) * quantile::kLn2;
}

}  // namespace

double inverse_normal(double p) {
  using namespace quantile;
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  double r = std::sqrt(0.0 - fixed_log(q < 0 ? p : 1.0 - p));
  if (r <= 5.0) {
    r = r - 1.6;
    r = polynomial(kC, r) / polynomial(kD, r);
  } else {
    r = r - 5.0;
    r = polynomial(kE, r) / polynomial(kF, r);
  }
  return q < 0 ? -r : r;
}

std::uint64_t permuted(Key key, std::uint64_t index, std::uint64_t size) {
  LACONIC_ASSERT(index < size, std::to_string(index) + " of " + std::to_string(size));
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(size - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = index >> half_bits;
    std::uint64_t right = index & mask;
    for (std::uint32_t round = 0; round < 4; ++round) {
      const PhiloxBlock mixed = philox(
          {static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(right >> 32), round, 0},
          key);
      const std::uint64_t f = (std::uint64_t{mixed[1]} << 32 | mixed[0]) & mask;
      left = std::exchange(right, left ^ f);
    }
    index = left << half_bits | right;
  } while (index >= size);
  return index;
}

}  // namespace laconic
