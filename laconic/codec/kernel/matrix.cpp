#include "laconic/codec/kernel/matrix.hpp"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "laconic/codec/kernel/tile.hpp"

namespace laconic::kernel {

namespace {

using Buffer = hwy::AlignedFreeUniquePtr<float[]>;

Buffer floats(std::size_t count) {
  Buffer buffer = hwy::AllocateAligned<float>(std::max<std::size_t>(count, 1));
  if (buffer == nullptr) throw std::bad_alloc();  // Highway returns null
  return buffer;
}

std::size_t tile_width(std::size_t columns) {
  return columns <= 4 ? 4 : columns <= 8 ? 8 : kTile;
}

// Columns first ... first + used - 1 of x[rows, r] as [rows, width], padded with zeros.
void pack_tile(const float* x, std::size_t rows, std::size_t r, std::size_t first, std::size_t used,
               std::size_t width, float* tile) {
  if (used < width) std::memset(tile, 0, rows * width * sizeof(float));
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(tile + i * width, x + i * r + first, used * sizeof(float));
}

// op(first column, columns used, width) for every tile of r columns.
template <class Op>
void for_each_tile(std::size_t r, const Op& op) {
  for (std::size_t first = 0; first < r; first += kTile) {
    const std::size_t used = std::min(kTile, r - first);
    op(first, used, tile_width(used));
  }
}

// q[m, r] as panels [ceil(m / kPanel)][r][kPanel], padded with zeros.
Buffer pack_panels(const float* q, std::size_t m, std::size_t r) {
  Buffer packed = floats((m + kPanel - 1) / kPanel * kPanel * r);
  for (std::size_t j = 0; j < m; j += kPanel) {
    float* panel = packed.get() + j * r;
    const std::size_t used = std::min(kPanel, m - j);
    if (used < kPanel) std::memset(panel, 0, r * kPanel * sizeof(float));
    for (std::size_t k = 0; k < used; ++k)
      for (std::size_t c = 0; c < r; ++c) panel[c * kPanel + k] = q[(j + k) * r + c];
  }
  return packed;
}

}  // namespace

void multiply(const float* a, std::size_t n, std::size_t m, const float* q, std::size_t r,
              float* y) {
  const Buffer tile = floats(m * kTile);
  for_each_tile(r, [&](std::size_t first, std::size_t used, std::size_t width) {
    pack_tile(q, m, r, first, used, width, tile.get());
    products().multiply(a, n, m, tile.get(), width, y + first, r, used);
  });
}

void multiply_transposed(const float* a, std::size_t n, std::size_t m, const float* p,
                         std::size_t r, float* q) {
  const Buffer tile = floats(kSumBlock * kTile), part = floats(kStrip * kTile);
  const Buffer total = floats(m * kTile);
  for_each_tile(r, [&](std::size_t first, std::size_t used, std::size_t width) {
    std::memset(total.get(), 0, m * width * sizeof(float));
    for (std::size_t i = 0; i < n; i += kSumBlock) {
      const std::size_t rows = std::min(kSumBlock, n - i);
      pack_tile(p + i * r, rows, r, first, used, width, tile.get());
      products().accumulate(a + i * m, rows, m, tile.get(), width, part.get(), total.get());
    }
    for (std::size_t j = 0; j < m; ++j)
      std::memcpy(q + j * r + first, total.get() + j * width, used * sizeof(float));
  });
}

void multiply_factors(const float* p, std::size_t n, const float* q, std::size_t m, std::size_t r,
                      float* out) {
  if (r == 0) return void(std::fill(out, out + n * m, 0.0F));
  const Buffer panels = pack_panels(q, m, r);
  products().expand(p, n, r, panels.get(), m, out);
}

}  // namespace laconic::kernel
