// codec/kernel/matrix.hpp — products with a thin matrix, the same bits on every processor.
//
// Not a BLAS: a BLAS picks its order of summation by the processor, and then
// two ends of a link would decode different numbers. Here lanes never share a
// sum, products and sums are rounded separately, and sums over a long dim are
// cut into blocks of fixed length, so each element is the same chain of
// operations whatever the instruction set. Keep it so: no MulAdd, no SumOfLanes.
//
// All matrices are row-major and contiguous; r is meant to be small beside n
// and m, but may be anything. Single-threaded. No pointer may overlap another.
// Callers flush denormals (base/denormals.hpp), as codec.cpp does.
#pragma once

#include <cstddef>

namespace laconic::kernel {

// Sums over n or m: each block of this many terms adds up, in order and from zero, by itself; the
// blocks' sums are then added in order, the first one to zero.
inline constexpr std::size_t kSumBlock = 256;

// y[n, r] = a[n, m] q[m, r].
void multiply(const float* a, std::size_t n, std::size_t m, const float* q, std::size_t r,
              float* y);

// q[m, r] = a[n, m]^T p[n, r].
void multiply_transposed(const float* a, std::size_t n, std::size_t m, const float* p,
                         std::size_t r, float* q);

// out[n, m] = p[n, r] q[m, r]^T, summed over r in order from the first product, in one piece.
// Zero when r is 0.
void multiply_factors(const float* p, std::size_t n, const float* q, std::size_t m, std::size_t r,
                      float* out);

}  // namespace laconic::kernel
