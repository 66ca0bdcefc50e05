#include "laconic/codec/kernel/projection.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/projection.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include "laconic/codec/kernel/unroll.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Double = hn::CappedTag<double, kColumnStep>;
using Vec = hn::Vec<Double>;
constexpr std::size_t kLanes = hn::MaxLanes(Double());
constexpr int kParts = kColumnStep / kLanes;

// kCount dot products at once: v is loaded once, and the chains of additions overlap.
template <int kCount>
HWY_INLINE void dot_group(const double* HWY_RESTRICT v, const double* HWY_RESTRICT columns,
                          std::size_t length, double* HWY_RESTRICT dots) {
  const Double d;
  Vec sum[kCount][kParts];
  LACONIC_UNROLL
  for (int c = 0; c < kCount; ++c) {
    LACONIC_UNROLL
    for (int k = 0; k < kParts; ++k) sum[c][k] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < length; i += kColumnStep) {
    LACONIC_UNROLL
    for (int k = 0; k < kParts; ++k) {
      const Vec x = hn::LoadU(d, v + i + k * kLanes);
      LACONIC_UNROLL
      for (int c = 0; c < kCount; ++c)
        sum[c][k] =
            hn::Add(sum[c][k], hn::Mul(x, hn::LoadU(d, columns + c * length + i + k * kLanes)));
    }
  }
  LACONIC_UNROLL
  for (int c = 0; c < kCount; ++c) {
    HWY_ALIGN double s[kColumnStep];
    LACONIC_UNROLL
    for (int k = 0; k < kParts; ++k) hn::Store(sum[c][k], d, s + k * kLanes);
    dots[c] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
}

void dot_columns(const double* v, const double* columns, std::size_t length, std::size_t count,
                 double* dots) {
  std::size_t c = 0;
  for (; c + 4 <= count; c += 4) dot_group<4>(v, columns + c * length, length, dots + c);
  for (; c < count; ++c) dot_group<1>(v, columns + c * length, length, dots + c);
}

template <int kCount>
HWY_INLINE void subtract_group(double* HWY_RESTRICT v, const double* HWY_RESTRICT columns,
                               std::size_t length, const double* HWY_RESTRICT factors) {
  const Double d;
  Vec factor[kCount];
  LACONIC_UNROLL
  for (int c = 0; c < kCount; ++c) factor[c] = hn::Set(d, factors[c]);
  for (std::size_t i = 0; i < length; i += kLanes) {
    Vec x = hn::LoadU(d, v + i);
    LACONIC_UNROLL
    for (int c = 0; c < kCount; ++c)
      x = hn::Sub(x, hn::Mul(factor[c], hn::LoadU(d, columns + c * length + i)));
    hn::StoreU(x, d, v + i);
  }
}

void subtract_columns(double* v, const double* columns, std::size_t length, std::size_t count,
                      const double* factors) {
  std::size_t c = 0;
  for (; c + 4 <= count; c += 4) subtract_group<4>(v, columns + c * length, length, factors + c);
  for (; c < count; ++c) subtract_group<1>(v, columns + c * length, length, factors + c);
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(dot_columns);
HWY_EXPORT(subtract_columns);

void dot_columns(const double* v, const double* columns, std::size_t length, std::size_t count,
                 double* dots) {
  HWY_DYNAMIC_DISPATCH(dot_columns)(v, columns, length, count, dots);
}

void subtract_columns(double* v, const double* columns, std::size_t length, std::size_t count,
                      const double* factors) {
  HWY_DYNAMIC_DISPATCH(subtract_columns)(v, columns, length, count, factors);
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
