// Copy and triad, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/machine/kernel/bandwidth.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <cstddef>

#include "laconic/machine/kernel/stream.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Requires: count is a multiple of the lanes, arrays are aligned to a vector.
void stream_copy(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t count) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::Store(hn::Load(d, b + i), d, a + i);
}

void stream_triad(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c,
                  std::size_t count) {
  const hn::ScalableTag<float> d;
  const auto s = hn::Set(d, 0.5f);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Store(hn::MulAdd(s, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
}

}  // namespace laconic::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic {

HWY_EXPORT(stream_copy);
HWY_EXPORT(stream_triad);

void stream_copy(float* a, const float* b, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(stream_copy)(a, b, count);
}

void stream_triad(float* a, const float* b, const float* c, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(stream_triad)(a, b, c, count);
}

}  // namespace laconic
#endif  // HWY_ONCE
