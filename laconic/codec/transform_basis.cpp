#include "laconic/codec/transform_basis.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic {

namespace {

constexpr int kMostBits = 8;
// Each multiplies with the second moments once more. Directions that are not quite principal only
// cost bits, so a few are enough, and fewer from a basis of some steps ago.
constexpr int kFirstRounds = 6, kLaterRounds = 2;

// The start of the search: what was found before, and drawn directions behind it.
std::vector<float> start_of(std::size_t columns, std::uint64_t seed, const TransformBasis* before) {
  std::vector<float> start(columns * columns);
  const Key key = key_of(seed);
  draw_start(start.data(), columns, columns, key);
  if (before != nullptr) {
    const std::size_t kept = before->bits.size();
    for (std::size_t i = 0; i < columns; ++i)
      std::copy_n(before->directions.data() + i * kept, kept, start.data() + i * columns);
  }
  orthonormalise_start(start.data(), columns, columns, key);
  return start;
}

// q^T c q of each column, where y = c q.
std::vector<double> energies_of(const std::vector<float>& q, const std::vector<float>& y,
                                std::size_t columns) {
  std::vector<double> energies(columns);
  for (std::size_t i = 0; i < columns; ++i)
    for (std::size_t c = 0; c < columns; ++c)
      energies[c] +=
          static_cast<double>(q[i * columns + c]) * static_cast<double>(y[i * columns + c]);
  return energies;
}

double trace_of(const std::vector<float>& moments, std::size_t columns) {
  double trace = 0;
  for (std::size_t i = 0; i < columns; ++i) trace += static_cast<double>(moments[i * columns + i]);
  return trace;
}

// The columns of q that have bits, those with most first.
TransformBasis kept_of(const std::vector<float>& q, const std::vector<int>& bits,
                       std::size_t columns) {
  std::vector<std::size_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return bits[a] > bits[b]; });
  while (!order.empty() && bits[order.back()] == 0) order.pop_back();
  TransformBasis basis{.columns = columns,
                       .directions = std::vector<float>(columns * order.size())};
  for (std::size_t k = 0; k < order.size(); ++k) {
    basis.bits.push_back(static_cast<std::uint8_t>(bits[order[k]]));
    for (std::size_t i = 0; i < columns; ++i)
      basis.directions[i * order.size() + k] = q[i * columns + order[k]];
  }
  basis.hash = hash_of(basis);
  return basis;
}

}  // namespace

std::uint32_t hash_of(const TransformBasis& basis) {
  Bytes bytes;
  put(bytes, basis.columns);
  for (const std::uint8_t b : basis.bits) put(bytes, b);
  for (const float x : basis.directions) put(bytes, x);
  return crc32c(bytes);
}

// energy / mean against 4^(k - bits - 1/2) = 2^(2 k - 2 bits - 1): powers of two, so that no
// logarithm's last digit decides.
int bits_of_direction(int bits, double energy, double mean) {
  int result = 0;
  while (result < kMostBits && energy >= std::ldexp(mean, 2 * (result + 1 - bits) - 1)) ++result;
  return result;
}

std::optional<TransformBasis> make_basis(const float* rows, std::size_t count, std::size_t columns,
                                         int bits, std::uint64_t seed,
                                         const TransformBasis* before) {
  const ScopedDenormals flush(true);
  std::vector<float> moments(columns * columns);
  kernel::multiply_transposed(rows, count, columns, rows, columns, moments.data());
  const double trace = trace_of(moments, columns);
  if (!is_finite(moments.data(), moments.size()) || !(trace > 0)) return std::nullopt;
  const bool goes_on = before != nullptr && before->columns == columns && !before->bits.empty();
  std::vector<float> q = start_of(columns, seed, goes_on ? before : nullptr), y(q.size());
  for (int round = goes_on ? kLaterRounds : kFirstRounds; round > 0; --round) {
    kernel::multiply(moments.data(), columns, columns, q.data(), columns, y.data());
    std::swap(q, y);
    orthonormalise(q.data(), columns, columns);
  }
  kernel::multiply(moments.data(), columns, columns, q.data(), columns, y.data());
  std::vector<int> shares;
  for (const double energy : energies_of(q, y, columns))
    shares.push_back(bits_of_direction(bits, energy, trace / static_cast<double>(columns)));
  TransformBasis basis = kept_of(q, shares, columns);
  if (basis.bits.empty()) return std::nullopt;
  return basis;
}

}  // namespace laconic
