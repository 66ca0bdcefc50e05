// codec/kernel/projection.hpp — projections among columns of f64, the same bits on every processor.
//
// For orthonormalisation, where f32 would cancel. The columns lie one after
// the other, each padded with zeros to a multiple of kColumnStep; sums are
// made of that many partial ones whatever the vector width.
#pragma once

#include <cstddef>

namespace laconic::kernel {

inline constexpr std::size_t kColumnStep = 8;
// Rows of a block, over which products of columns are summed first (codec/subspace.cpp).
inline constexpr std::size_t kGramRows = 256;
// Columns are made orthonormal together only if of each at least this share of its square is
// outside the span of those before, and if products of what comes of it are so near to 0 and 1.
inline constexpr double kApart = 1e-6, kStraight = 1e-8;

// dots[c] = v . columns[c], c < count. Partial sum s adds the products s, s + 8, s + 16 ... in
// order; then those 4 apart are added, then 2, then 1. Requires: length % kColumnStep == 0.
void dot_columns(const double* v, const double* columns, std::size_t length, std::size_t count,
                 double* dots);

// v -= factors[0] columns[0], then factors[1] columns[1], ... Requires: as above.
void subtract_columns(double* v, const double* columns, std::size_t length, std::size_t count,
                      const double* factors);

}  // namespace laconic::kernel
