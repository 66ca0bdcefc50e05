#include "laconic/codec/kernel/tile.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/tile.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/kernel/unroll.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
constexpr std::size_t kWide = hn::MaxLanes(Wide());
constexpr bool kManyRegisters = kWide >= 16;  // AVX-512 has 32, what is below has 16
static_assert(kWide <= kTile);

// --- y = a q. A tile of kRows x (kVectors * lanes) sums stays in registers while j runs.

template <int kRows, int kVectors, class D>
HWY_INLINE void multiply_block(D d, const float* HWY_RESTRICT a, std::size_t stride,
                               std::size_t count, const float* HWY_RESTRICT q, std::size_t width,
                               float* HWY_RESTRICT total) {
  using V = hn::Vec<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  V sum[kRows][kVectors];
  LACONIC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (std::size_t j = 0; j < count; ++j) {
    V line[kVectors];
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) line[v] = hn::LoadU(d, q + j * width + v * kLanes);
    LACONIC_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, a[i * stride + j]);
      LACONIC_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Add(sum[i][v], hn::Mul(x, line[v]));
    }
  }
  LACONIC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* at = total + i * kTile + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, at), sum[i][v]), d, at);
    }
  }
}

template <int kRows, int kVectors, class D>
HWY_INLINE void multiply_rows(D d, const float* a, std::size_t m, const float* q, std::size_t width,
                              float* y, std::size_t y_stride, std::size_t used) {
  constexpr std::size_t kStep = kVectors * hn::MaxLanes(D());
  HWY_ALIGN float total[kRows * kTile] = {};
  for (std::size_t j = 0; j < m; j += kSumBlock)
    for (std::size_t c = 0; c < width; c += kStep)
      multiply_block<kRows, kVectors>(d, a + j, m, std::min(kSumBlock, m - j), q + j * width + c,
                                      width, total + c);
  for (int i = 0; i < kRows; ++i)
    std::memcpy(y + i * y_stride, total + i * kTile, used * sizeof(float));
}

template <int kRows, int kVectors, class D>
HWY_INLINE void multiply_with(D d, const float* a, std::size_t n, std::size_t m, const float* q,
                              std::size_t width, float* y, std::size_t y_stride, std::size_t used) {
  std::size_t i = 0;
  for (; i + kRows <= n; i += kRows)
    multiply_rows<kRows, kVectors>(d, a + i * m, m, q, width, y + i * y_stride, y_stride, used);
  for (; i < n; ++i)
    multiply_rows<1, kVectors>(d, a + i * m, m, q, width, y + i * y_stride, y_stride, used);
}

void multiply(const float* a, std::size_t n, std::size_t m, const float* q, std::size_t width,
              float* y, std::size_t y_stride, std::size_t used) {
  constexpr int kRows = kWide == kTile ? 8 : 4, kVectors = kWide == kTile ? 1 : 2;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 8> eight;
  if (width == 4) return multiply_with<8, 1>(four, a, n, m, q, width, y, y_stride, used);
  if (width == 8) return multiply_with<8, 1>(eight, a, n, m, q, width, y, y_stride, used);
  multiply_with<kRows, kVectors>(Wide(), a, n, m, q, width, y, y_stride, used);
}

// --- q = a^T p. kRows lines of p stay in registers while j runs along as many rows of a. The sums
// of one j form a chain; the processor overlaps those of several j by itself, and does it better
// than an unrolled loop that loads and stores in bursts (68 -> 100 GFLOP/s on Zen 4).

template <int kRows, class D>
HWY_INLINE void accumulate_rows(D d, const float* HWY_RESTRICT a, std::size_t stride,
                                std::size_t count, const float* HWY_RESTRICT p, std::size_t width,
                                bool fresh, float* HWY_RESTRICT part) {
  using V = hn::Vec<D>;
  V line[kRows];
  LACONIC_UNROLL
  for (int i = 0; i < kRows; ++i) line[i] = hn::LoadU(d, p + i * width);
  for (std::size_t j = 0; j < count; ++j) {
    V sum = fresh ? hn::Zero(d) : hn::LoadU(d, part + j * width);
    LACONIC_UNROLL
    for (int i = 0; i < kRows; ++i)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, a[i * stride + j]), line[i]));
    hn::StoreU(sum, d, part + j * width);
  }
}

// part[count, width] = a[rows, count]^T p.
template <class D>
HWY_INLINE void accumulate_strip(D d, const float* a, std::size_t stride, std::size_t rows,
                                 std::size_t count, const float* p, std::size_t width,
                                 float* part) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  std::size_t i = 0;
  for (; i + 8 <= rows; i += 8)
    for (std::size_t c = 0; c < width; c += kLanes)
      accumulate_rows<8>(d, a + i * stride, stride, count, p + i * width + c, width, i == 0,
                         part + c);
  for (; i < rows; ++i)
    for (std::size_t c = 0; c < width; c += kLanes)
      accumulate_rows<1>(d, a + i * stride, stride, count, p + i * width + c, width, i == 0,
                         part + c);
}

template <class D>
HWY_INLINE void accumulate_with(D d, const float* a, std::size_t rows, std::size_t m,
                                const float* p, std::size_t width, float* part, float* total) {
  for (std::size_t j = 0; j < m; j += kStrip) {
    const std::size_t count = std::min(kStrip, m - j);
    accumulate_strip(d, a + j, m, rows, count, p, width, part);
    for (std::size_t k = 0; k < count * width; k += hn::MaxLanes(D())) {
      float* at = total + j * width + k;
      hn::StoreU(hn::Add(hn::LoadU(d, at), hn::LoadU(d, part + k)), d, at);
    }
  }
}

void accumulate(const float* a, std::size_t rows, std::size_t m, const float* p, std::size_t width,
                float* part, float* total) {
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 8> eight;
  if (width == 4) return accumulate_with(four, a, rows, m, p, width, part, total);
  if (width == 8) return accumulate_with(eight, a, rows, m, p, width, part, total);
  accumulate_with(Wide(), a, rows, m, p, width, part, total);
}

// --- out = p q^T. Lanes are columns of the result, so no lane shares a sum.

template <int kRows, int kVectors>
HWY_INLINE void expand_at(const float* HWY_RESTRICT p, std::size_t r,
                          const float* HWY_RESTRICT panel, float* HWY_RESTRICT out,
                          std::size_t stride) {
  const Wide d;
  using V = hn::Vec<Wide>;
  V sum[kRows][kVectors];
  LACONIC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const V x = hn::Set(d, p[i * r]);
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Mul(x, hn::LoadU(d, panel + v * kWide));
  }
  for (std::size_t c = 1; c < r; ++c) {
    V line[kVectors];
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) line[v] = hn::LoadU(d, panel + c * kPanel + v * kWide);
    LACONIC_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, p[i * r + c]);
      LACONIC_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Add(sum[i][v], hn::Mul(x, line[v]));
    }
  }
  LACONIC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    LACONIC_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, out + i * stride + v * kWide);
  }
}

// kRows rows of one panel's columns, of which the last panel has fewer.
template <int kRows>
HWY_INLINE void expand_rows(const float* p, std::size_t r, const float* panel, std::size_t used,
                            float* out, std::size_t stride) {
  constexpr int kVectors = kManyRegisters ? 4 : 2;
  HWY_ALIGN float rest[kRows * kPanel];
  float* to = used == kPanel ? out : rest;
  const std::size_t to_stride = used == kPanel ? stride : kPanel;
  for (std::size_t v = 0; v < kPanel; v += kVectors * kWide)
    expand_at<kRows, kVectors>(p, r, panel + v, to + v, to_stride);
  if (used == kPanel) return;
  for (int i = 0; i < kRows; ++i)
    std::memcpy(out + i * stride, rest + i * kPanel, used * sizeof(float));
}

void expand(const float* p, std::size_t n, std::size_t r, const float* panels, std::size_t m,
            float* out) {
  for (std::size_t begin = 0; begin < n; begin += kPanelRows) {
    const std::size_t end = std::min(begin + kPanelRows, n);
    for (std::size_t j = 0; j < m; j += kPanel) {
      const std::size_t used = std::min(kPanel, m - j);
      std::size_t i = begin;
      for (; i + 4 <= end; i += 4)
        expand_rows<4>(p + i * r, r, panels + j * r, used, out + i * m + j, m);
      for (; i < end; ++i) expand_rows<1>(p + i * r, r, panels + j * r, used, out + i * m + j, m);
    }
  }
}

const Products* products() {
  static constexpr Products kTable = {multiply, accumulate, expand};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(products);

const Products& products() {
  return *HWY_DYNAMIC_DISPATCH(products)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
