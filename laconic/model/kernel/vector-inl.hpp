// model/kernel/vector-inl.hpp — loops over vectors, and exp, for use inside Highway kernels.
//
// Included once per target by a file that went through hwy/foreach_target.h,
// hence the unusual guard.
#if defined(LACONIC_MODEL_KERNEL_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LACONIC_MODEL_KERNEL_VECTOR_INL
#undef LACONIC_MODEL_KERNEL_VECTOR_INL
#else
#define LACONIC_MODEL_KERNEL_VECTOR_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

// Applies op to whole vectors, and to the last, partial one through a buffer padded with zeros.
// op(loads...) gets one vector per input.
template <class T, class Op, class... In>
HWY_INLINE void transform(T* out, std::int64_t size, const Op& op, const In*... in) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(op(hn::LoadU(d, in + i)...), d, out + i);
  if (i == size) return;
  HWY_ALIGN T result[HWY_MAX_BYTES / sizeof(T)];
  const auto load_rest = [&](const T* from) {
    HWY_ALIGN T rest[HWY_MAX_BYTES / sizeof(T)] = {};
    std::copy(from + i, from + size, rest);
    return hn::Load(d, rest);
  };
  hn::Store(op(load_rest(in)...), d, result);
  std::copy(result, result + (size - i), out + i);
}

// The same with two outputs: op(first, second, loads...) sets the first two. An output may be an
// input.
template <class T, class Op, class... In>
HWY_INLINE void transform_to_two(T* first, T* second, std::int64_t size, const Op& op,
                                 const In*... in) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec<T> a = hn::Zero(d), b = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    op(a, b, hn::LoadU(d, in + i)...);
    hn::StoreU(a, d, first + i);
    hn::StoreU(b, d, second + i);
  }
  if (i == size) return;
  const auto load_rest = [&](const T* from) {
    HWY_ALIGN T rest[HWY_MAX_BYTES / sizeof(T)] = {};
    std::copy(from + i, from + size, rest);
    return hn::Load(d, rest);
  };
  op(a, b, load_rest(in)...);
  HWY_ALIGN T result[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(a, d, result);
  std::copy(result, result + (size - i), first + i);
  hn::Store(b, d, result);
  std::copy(result, result + (size - i), second + i);
}

// Sum over i of op(loads...), lane by lane and then over the lanes. Lanes beyond the end are zeros
// in every input, for which op must give zero.
template <class T, class Op, class... In>
HWY_INLINE T sum_of(std::int64_t size, const Op& op, const In*... in) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec<T> sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) sum = hn::Add(sum, op(hn::LoadU(d, in + i)...));
  if (i < size) {
    const auto load_rest = [&](const T* from) {
      HWY_ALIGN T rest[HWY_MAX_BYTES / sizeof(T)] = {};
      std::copy(from + i, from + size, rest);
      return hn::Load(d, rest);
    };
    sum = hn::Add(sum, op(load_rest(in)...));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// exp with its argument clamped to where the result is a normal number: a denormal would cost a
// hundred cycles, and what it would add is below rounding. Highway's exp turns NaN into 0; here it
// stays NaN, so that a broken number reaches the loss and the guard there.
template <class T>
HWY_INLINE Vec<T> clamped_exp(Vec<T> x) {
  const Tag<T> d;
  constexpr T kLargest = sizeof(T) == 4 ? T(87) : T(708);
  const Vec<T> inside = hn::Max(hn::Min(x, hn::Set(d, kLargest)), hn::Set(d, -kLargest));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, inside));
}

template <class T>
HWY_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1));
  return hn::Div(one, hn::Add(one, clamped_exp<T>(hn::Neg(x))));
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard
