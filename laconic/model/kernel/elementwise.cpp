#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/model/kernel/elementwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/kernel/philox-inl.hpp"
#include "laconic/model/kernel/elementwise.hpp"

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
struct Gelu {
  // sigmoid(2 u)
  static HWY_INLINE Vec<T> gate(Vec<T> x) {
    const Tag<T> d;
    const Vec<T> minus_two_k = hn::Set(d, T(-1.5957691216057308));  // -2 sqrt(2 / pi)
    const Vec<T> cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(0.044715)), hn::Set(d, T(1)));
    const Vec<T> e = clamped_exp<T>(hn::Mul(hn::Mul(minus_two_k, x), cubic));
    return hn::Div(hn::Set(d, T(1)), hn::Add(hn::Set(d, T(1)), e));
  }
  // d gelu / dx = s + x s (1 - s) 2 u'
  static HWY_INLINE Vec<T> slope(Vec<T> x) {
    const Tag<T> d;
    const Vec<T> one = hn::Set(d, T(1));
    const Vec<T> s = gate(x);
    const Vec<T> two_u_slope = hn::Mul(hn::Set(d, T(1.5957691216057308)),
                                       hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(3 * 0.044715)), one));
    const Vec<T> bend = hn::Mul(hn::Mul(x, s), hn::Mul(hn::Sub(one, s), two_u_slope));
    return hn::Add(s, bend);
  }
};

template <class T>
void gelu(const T* x, T* y, std::int64_t size) {
  transform(
      y, size, [](Vec<T> v) { return hn::Mul(v, Gelu<T>::gate(v)); }, x);
}

template <class T>
void gelu_backward(const T* x, const T* dy, T* dx, std::int64_t size) {
  transform(
      dx, size, [](Vec<T> v, Vec<T> g) { return hn::Mul(g, Gelu<T>::slope(v)); }, x, dy);
}

template <class T>
HWY_INLINE Vec<T> dropped(const std::uint32_t* words, Vec<T> x, std::uint32_t threshold, T scale) {
  const Tag<T> d;
  const hn::Rebind<std::uint32_t, Tag<T>> dw;
  const hn::RebindToUnsigned<Tag<T>> du;
  const auto lost = [&] {
    if constexpr (sizeof(T) == 4)
      return hn::Lt(hn::LoadU(dw, words), hn::Set(dw, threshold));
    else
      return hn::Lt(hn::PromoteTo(du, hn::LoadU(dw, words)), hn::Set(du, threshold));
  }();
  return hn::IfThenZeroElse(hn::RebindMask(d, lost), hn::Mul(x, hn::Set(d, scale)));
}

template <bool kResidual, class T>
HWY_INLINE void dropout_run(const std::uint32_t* words, const T* residual, const T* x, T* out,
                            std::int64_t size, std::uint32_t threshold, T scale) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    Vec<T> y = dropped<T>(words + i, hn::LoadU(d, x + i), threshold, scale);
    if constexpr (kResidual) y = hn::Add(hn::LoadU(d, residual + i), y);
    hn::StoreU(y, d, out + i);
  }
  for (; i < size; ++i)
    out[i] = (kResidual ? residual[i] : T(0)) + (words[i] >= threshold ? scale * x[i] : T(0));
}

template <class T>
void dropout_add(const T* residual, const T* x, T* out, std::int64_t size, Key key,
                 std::uint64_t first, DropoutRule rule) {
  const T scale = static_cast<T>(rule.scale);
  const auto run = [&](const std::uint32_t* words, std::size_t at, std::size_t count) {
    const auto n = static_cast<std::int64_t>(count);
    if (residual != nullptr)
      dropout_run<true>(words, residual + at, x + at, out + at, n, rule.threshold, scale);
    else
      dropout_run<false, T>(words, nullptr, x + at, out + at, n, rule.threshold, scale);
  };
  laconic::HWY_NAMESPACE::for_each_word_run(key, first, static_cast<std::size_t>(size), run);
}

template <class T>
HWY_INLINE T row_max(const T* row, std::int64_t size) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec<T> best = hn::Set(d, -std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) best = hn::Max(best, hn::LoadU(d, row + i));
  T largest = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < size; ++i) largest = std::max(largest, row[i]);
  return largest;
}

// Sum of exp(scale * (row[i] - shift)); stores the terms too when kStore.
template <bool kStore, class T>
HWY_INLINE T exp_sum(const T* row, T* out, std::int64_t size, T scale, T shift) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Vec<T> vscale = hn::Set(d, scale), vshift = hn::Set(d, shift);
  Vec<T> sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const Vec<T> e = clamped_exp<T>(hn::Mul(vscale, hn::Sub(hn::LoadU(d, row + i), vshift)));
    if constexpr (kStore) hn::StoreU(e, d, out + i);
    sum = hn::Add(sum, e);
  }
  T total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < size; ++i) {
    const T e = std::exp(scale * (row[i] - shift));
    if constexpr (kStore) out[i] = e;
    total += e;
  }
  return total;
}

template <class T>
void causal_softmax(T* scores, std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                    double scale, T* log_sums) {
  const T s = static_cast<T>(scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = scores + r * columns;
    const std::int64_t visible = std::min(columns, first_row + r + 1);
    const T largest = row_max(row, visible);
    const T sum = exp_sum<true>(row, row, visible, s, largest);
    const T inverse = T(1) / sum;
    transform(
        row, visible, [&](Vec<T> v) { return hn::Mul(v, hn::Set(Tag<T>(), inverse)); }, row);
    std::fill(row + visible, row + columns, T(0));
    log_sums[r] = s * largest + std::log(sum);
  }
}

// One row of causal_softmax_backward without dropout: P is left in `row`, d(q k^T) in `gradient`.
template <class T>
HWY_INLINE void softmax_row_backward(T* row, T* gradient, std::int64_t size, T scale, T log_sum) {
  const Tag<T> d;
  const Vec<T> vscale = hn::Set(d, scale), vlog_sum = hn::Set(d, log_sum);
  transform(
      row, size, [&](Vec<T> v) { return clamped_exp<T>(hn::Sub(hn::Mul(vscale, v), vlog_sum)); },
      row);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec<T> dots = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes)
    dots = hn::MulAdd(hn::LoadU(d, row + i), hn::LoadU(d, gradient + i), dots);
  T dot = hn::GetLane(hn::SumOfLanes(d, dots));
  for (; i < size; ++i) dot += row[i] * gradient[i];
  const Vec<T> vdot = hn::Set(d, dot);
  transform(
      gradient, size,
      [&](Vec<T> p, Vec<T> g) { return hn::Mul(hn::Mul(vscale, p), hn::Sub(g, vdot)); }, row,
      gradient);
}

template <class T>
void causal_softmax_backward(T* scores, T* gradients, std::int64_t rows, std::int64_t columns,
                             std::int64_t first_row, double scale, const T* log_sums, Key key,
                             std::uint64_t first_word, std::uint64_t row_words, DropoutRule rule) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = scores + r * columns;
    T* gradient = gradients + r * columns;
    const std::int64_t visible = std::min(columns, first_row + r + 1);
    const std::uint64_t word = first_word + static_cast<std::uint64_t>(r) * row_words;
    if (rule.threshold > 0) dropout_add<T>(nullptr, gradient, gradient, visible, key, word, rule);
    softmax_row_backward(row, gradient, visible, static_cast<T>(scale), log_sums[r]);
    if (rule.threshold > 0) dropout_add<T>(nullptr, row, row, visible, key, word, rule);
    std::fill(row + visible, row + columns, T(0));
    std::fill(gradient + visible, gradient + columns, T(0));
  }
}

template <class T>
T log_sum_exp(const T* row, std::int64_t size) {
  const T largest = row_max(row, size);
  // A row with a NaN or an infinity has no finite answer; say so rather than hide it.
  if (!std::isfinite(largest)) return std::numeric_limits<T>::quiet_NaN();
  return largest + std::log(exp_sum<false>(row, static_cast<T*>(nullptr), size, T(1), largest));
}

template <class T>
void cross_entropy_backward(T* row, std::int64_t size, T log_sum, std::int64_t target, T scale) {
  const Tag<T> d;
  const Vec<T> vlog_sum = hn::Set(d, log_sum), vscale = hn::Set(d, scale);
  transform(
      row, size, [&](Vec<T> v) { return hn::Mul(vscale, clamped_exp<T>(hn::Sub(v, vlog_sum))); },
      row);
  row[target] -= scale;
}

template <class T>
HWY_INLINE const Elementwise<T>* table_of() {
  static constexpr Elementwise<T> kTable = {gelu<T>,
                                            gelu_backward<T>,
                                            dropout_add<T>,
                                            causal_softmax<T>,
                                            causal_softmax_backward<T>,
                                            log_sum_exp<T>,
                                            cross_entropy_backward<T>};
  return &kTable;
}

const Elementwise<float>* table_f32() {
  return table_of<float>();
}
const Elementwise<double>* table_f64() {
  return table_of<double>();
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);

template <>
const Elementwise<float>& elementwise<float>() {
  return *HWY_DYNAMIC_DISPATCH(table_f32)();
}
template <>
const Elementwise<double>& elementwise<double>() {
  return *HWY_DYNAMIC_DISPATCH(table_f64)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
