#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/model/kernel/elementwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/kernel/philox-inl.hpp"
#include "laconic/model/kernel/elementwise.hpp"
#include "laconic/model/kernel/gelu-inl.hpp"
#include "laconic/model/kernel/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
void exact_gelu(const T* x, T* y, std::int64_t size) {
  transform(
      y, size, [](Vec<T> v) { return ExactGelu<T>::value(v); }, x);
}

template <class T>
void exact_gelu_backward(const T* x, const T* dy, T* dx, std::int64_t size) {
  transform(
      dx, size, [](Vec<T> v, Vec<T> g) { return hn::Mul(g, ExactGelu<T>::slope(v)); }, x, dy);
}

template <class T>
void swiglu(const T* gate, const T* up, T* y, std::int64_t size) {
  transform(
      y, size, [](Vec<T> g, Vec<T> u) { return hn::Mul(hn::Mul(g, sigmoid<T>(g)), u); }, gate, up);
}

// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g)
template <class T>
void swiglu_backward(const T* gate, const T* up, const T* dy, T* d_gate, T* d_up,
                     std::int64_t size) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1));
  transform_to_two(
      d_gate, d_up, size,
      [&](Vec<T>& dg, Vec<T>& du, Vec<T> g, Vec<T> u, Vec<T> above) {
        const Vec<T> s = sigmoid<T>(g);
        const Vec<T> slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
        dg = hn::Mul(hn::Mul(above, u), slope);
        du = hn::Mul(above, hn::Mul(g, s));
      },
      gate, up, dy);
}

template <class T>
void rms_norm(const T* x, const T* weight, T* y, T* inverses, std::int64_t rows, std::int64_t width,
              double epsilon) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const T squares = sum_of<T>(
        width, [](Vec<T> v) { return hn::Mul(v, v); }, x);
    inverses[r] = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon));
    const Vec<T> inverse = hn::Set(Tag<T>(), inverses[r]);
    transform(
        y, width, [&](Vec<T> v, Vec<T> w) { return hn::Mul(hn::Mul(v, inverse), w); }, x, weight);
  }
}

// With i the inverse and g = weight dy: dx = i (g - x i^2 mean(g x)), d_weight += dy x i.
template <class T>
void rms_norm_backward(const T* x, const T* weight, const T* dy, const T* inverses, T* dx,
                       T* d_weight, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    const T dot = sum_of<T>(
        width, [](Vec<T> v, Vec<T> w, Vec<T> g) { return hn::Mul(hn::Mul(v, w), g); }, x, weight,
        dy);
    const T pull = inverses[r] * inverses[r] * dot / static_cast<T>(width);
    const Vec<T> inverse = hn::Set(Tag<T>(), inverses[r]), vpull = hn::Set(Tag<T>(), pull);
    transform_to_two(
        dx, d_weight, width,
        [&](Vec<T>& to, Vec<T>& d_w, Vec<T> v, Vec<T> w, Vec<T> g, Vec<T> before) {
          to = hn::Mul(inverse, hn::NegMulAdd(v, vpull, hn::Mul(w, g)));
          d_w = hn::MulAdd(g, hn::Mul(v, inverse), before);
        },
        x, weight, dy, d_weight);
  }
}

template <class T>
void rotate(const T* x, const T* cosines, const T* sines, T* y, std::int64_t heads,
            std::int64_t half, bool is_inverse) {
  const Vec<T> sign = hn::Set(Tag<T>(), is_inverse ? T(-1) : T(1));
  for (std::int64_t head = 0; head < heads; ++head, x += 2 * half, y += 2 * half)
    transform_to_two(
        y, y + half, half,
        [&](Vec<T>& first, Vec<T>& second, Vec<T> a, Vec<T> b, Vec<T> c, Vec<T> s) {
          const Vec<T> turn = hn::Mul(s, sign);
          first = hn::NegMulAdd(b, turn, hn::Mul(a, c));
          second = hn::MulAdd(a, turn, hn::Mul(b, c));
        },
        x, x + half, cosines, sines);
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
T sum(const T* row, std::int64_t size) {
  return sum_of<T>(
      size, [](Vec<T> v) { return v; }, row);
}

template <class T>
void cross_entropy_backward(T* row, std::int64_t size, T log_sum, std::int64_t target, T scale,
                            double smoothing) {
  const Tag<T> d;
  const Vec<T> vlog_sum = hn::Set(d, log_sum), vscale = hn::Set(d, scale);
  const Vec<T> floor = hn::Set(d, static_cast<T>(smoothing / static_cast<double>(size)));
  transform(
      row, size,
      [&](Vec<T> v) {
        return hn::Mul(vscale, hn::Sub(clamped_exp<T>(hn::Sub(v, vlog_sum)), floor));
      },
      row);
  row[target] -= scale * static_cast<T>(1 - smoothing);
}

template <class T>
HWY_INLINE const Elementwise<T>* table_of() {
  static constexpr Elementwise<T> kTable = {.gelu = gelu<T>,
                                            .gelu_backward = gelu_backward<T>,
                                            .exact_gelu = exact_gelu<T>,
                                            .exact_gelu_backward = exact_gelu_backward<T>,
                                            .swiglu = swiglu<T>,
                                            .swiglu_backward = swiglu_backward<T>,
                                            .rms_norm = rms_norm<T>,
                                            .rms_norm_backward = rms_norm_backward<T>,
                                            .rotate = rotate<T>,
                                            .dropout_add = dropout_add<T>,
                                            .causal_softmax = causal_softmax<T>,
                                            .causal_softmax_backward = causal_softmax_backward<T>,
                                            .log_sum_exp = log_sum_exp<T>,
                                            .sum = sum<T>,
                                            .cross_entropy_backward = cross_entropy_backward<T>};
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

DropoutRule rule_of(double probability) {
  return {static_cast<std::uint32_t>(std::ldexp(probability, 32)), 1 / (1 - probability)};
}

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
