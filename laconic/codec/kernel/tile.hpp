// codec/kernel/tile.hpp — the inside of kernel/matrix.hpp: products of packed pieces.
//
// tile.cpp has the loops, compiled once per instruction set; matrix.cpp cuts
// the matrices into the pieces below and calls them. Nothing else includes this.
#pragma once

#include <cstddef>

namespace laconic::kernel {

// A thin matrix is cut into tiles of this many columns, the last of 4, 8 or 16, padded with zeros.
inline constexpr std::size_t kTile = 16;
// accumulate() works on this many rows of its result at a time, which stay in the near cache.
inline constexpr std::size_t kStrip = 512;
// expand(): columns of the result per panel, and how many of its rows use one while it is near.
inline constexpr std::size_t kPanel = 64;
inline constexpr std::size_t kPanelRows = 16;

struct Products {
  // One tile: y[n, used] = a[n, m] q[m, width], rows of y lying y_stride apart.
  void (*multiply)(const float* a, std::size_t n, std::size_t m, const float* q, std::size_t width,
                   float* y, std::size_t y_stride, std::size_t used);
  // One tile: total[m, width] += a[rows, m]^T p[rows, width]. Scratch: part[kStrip, width].
  // Requires: 0 < rows <= kSumBlock.
  void (*accumulate)(const float* a, std::size_t rows, std::size_t m, const float* p,
                     std::size_t width, float* part, float* total);
  // out[n, m] = p[n, r] times panels [ceil(m / kPanel)][r][kPanel]. Requires: r > 0.
  void (*expand)(const float* p, std::size_t n, std::size_t r, const float* panels, std::size_t m,
                 float* out);
};

const Products& products();

}  // namespace laconic::kernel
