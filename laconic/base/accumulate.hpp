// base/accumulate.hpp — sums of runs of numbers, element by element.
//
// In pieces of a known size, because only such loops use vectors at -O2 with every compiler. The
// runs may not overlap.
#pragma once

#include <cstdint>

namespace laconic {

// sum[i] += x[i]
template <class T>
void accumulate(const T* __restrict x, std::int64_t size, T* __restrict sum) {
  constexpr std::int64_t kPiece = 64 / sizeof(T);
  for (; size >= kPiece; size -= kPiece, x += kPiece, sum += kPiece)
    for (std::int64_t i = 0; i < kPiece; ++i) sum[i] += x[i];
  for (std::int64_t i = 0; i < size; ++i) sum[i] += x[i];
}

// sum[i] = 0 + x[i], the first of several: a copy, but for -0.
template <class T>
void begin_sum(const T* __restrict x, std::int64_t size, T* __restrict sum) {
  constexpr std::int64_t kPiece = 64 / sizeof(T);
  for (; size >= kPiece; size -= kPiece, x += kPiece, sum += kPiece)
    for (std::int64_t i = 0; i < kPiece; ++i) sum[i] = T(0) + x[i];
  for (std::int64_t i = 0; i < size; ++i) sum[i] = T(0) + x[i];
}

}  // namespace laconic
