#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/update/kernel/update.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <cmath>

#include "laconic/update/kernel/update.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The rule with everything that does not depend on the element worked out:
//   m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) g^2
//   p = p (1 - lr decay) - (lr / c1) m / (sqrt(v / c2) + epsilon)
template <class T>
struct Constants {
  T scale, beta1, rest1, beta2, rest2, shrink, step, root, epsilon;
  explicit Constants(const AdamWRule& r)
      : scale(static_cast<T>(r.gradient_scale)),
        beta1(static_cast<T>(r.beta1)),
        rest1(static_cast<T>(1 - r.beta1)),
        beta2(static_cast<T>(r.beta2)),
        rest2(static_cast<T>(1 - r.beta2)),
        shrink(static_cast<T>(1 - r.lr * r.weight_decay)),
        step(static_cast<T>(r.lr / r.correction1)),
        root(static_cast<T>(1 / std::sqrt(r.correction2))),
        epsilon(static_cast<T>(r.epsilon)) {}
};

template <class T>
void adamw(T* parameter, const T* gradient, T* moment1, T* moment2, std::int64_t size,
           const AdamWRule& rule) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Constants<T> c(rule);
  const auto scale = hn::Set(d, c.scale), beta1 = hn::Set(d, c.beta1), rest1 = hn::Set(d, c.rest1),
             beta2 = hn::Set(d, c.beta2), rest2 = hn::Set(d, c.rest2),
             shrink = hn::Set(d, c.shrink), step = hn::Set(d, c.step), root = hn::Set(d, c.root),
             epsilon = hn::Set(d, c.epsilon);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), scale);
    const auto m = hn::Add(hn::Mul(hn::LoadU(d, moment1 + i), beta1), hn::Mul(g, rest1));
    const auto v =
        hn::Add(hn::Mul(hn::LoadU(d, moment2 + i), beta2), hn::Mul(hn::Mul(g, g), rest2));
    const auto denominator = hn::Add(hn::Mul(hn::Sqrt(v), root), epsilon);
    const auto move = hn::Div(hn::Mul(m, step), denominator);
    hn::StoreU(m, d, moment1 + i);
    hn::StoreU(v, d, moment2 + i);
    hn::StoreU(hn::Sub(hn::Mul(hn::LoadU(d, parameter + i), shrink), move), d, parameter + i);
  }
  // The same operations in the same order: an element's result does not depend on its neighbours.
  for (; i < size; ++i) {
    const T g = gradient[i] * c.scale;
    const T m = moment1[i] * c.beta1 + g * c.rest1;
    const T v = moment2[i] * c.beta2 + g * g * c.rest2;
    const T denominator = std::sqrt(v) * c.root + c.epsilon;
    moment1[i] = m;
    moment2[i] = v;
    parameter[i] = parameter[i] * c.shrink - m * c.step / denominator;
  }
}

// Calls body(tag, i) for whole vectors and then for single elements: the same operations in the
// same order for both.
template <class T, class Body>
HWY_INLINE void for_each_vector(std::int64_t size, const Body& body) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) body(d, i);
  for (; i < size; ++i) body(hn::CappedTag<T, 1>(), i);
}

template <class T>
void adam(T* parameter, const T* gradient, T* moment1, T* moment2, std::int64_t size,
          const AdamWRule& rule) {
  const Constants<T> c(rule);
  const auto decay = static_cast<T>(rule.weight_decay);
  for_each_vector<T>(size, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto p = hn::LoadU(d, parameter + i);
    const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, c.scale)),
                           hn::Mul(p, hn::Set(d, decay)));
    const auto m = hn::Add(hn::Mul(hn::LoadU(d, moment1 + i), hn::Set(d, c.beta1)),
                           hn::Mul(g, hn::Set(d, c.rest1)));
    const auto v = hn::Add(hn::Mul(hn::LoadU(d, moment2 + i), hn::Set(d, c.beta2)),
                           hn::Mul(hn::Mul(g, g), hn::Set(d, c.rest2)));
    const auto denominator =
        hn::Add(hn::Mul(hn::Sqrt(v), hn::Set(d, c.root)), hn::Set(d, c.epsilon));
    hn::StoreU(m, d, moment1 + i);
    hn::StoreU(v, d, moment2 + i);
    hn::StoreU(hn::Sub(p, hn::Div(hn::Mul(m, hn::Set(d, c.step)), denominator)), d, parameter + i);
  });
}

template <class T>
void sgd(T* parameter, const T* gradient, T* moment, std::int64_t size, const SgdRule& rule) {
  const auto lr = static_cast<T>(rule.lr), momentum = static_cast<T>(rule.momentum),
             decay = static_cast<T>(rule.weight_decay), scale = static_cast<T>(rule.gradient_scale);
  for_each_vector<T>(size, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto p = hn::LoadU(d, parameter + i);
    const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, scale)),
                           hn::Mul(p, hn::Set(d, decay)));
    const auto m = hn::Add(hn::Mul(hn::LoadU(d, moment + i), hn::Set(d, momentum)), g);
    const auto move = rule.nesterov ? hn::Add(g, hn::Mul(m, hn::Set(d, momentum))) : m;
    hn::StoreU(m, d, moment + i);
    hn::StoreU(hn::Sub(p, hn::Mul(move, hn::Set(d, lr))), d, parameter + i);
  });
}

// The update is the sign of a mean, and 0 where that is 0.
template <class T>
void lion(T* parameter, const T* gradient, T* moment, std::int64_t size, const LionRule& rule) {
  const auto lr = static_cast<T>(rule.lr), shrink = static_cast<T>(1 - rule.lr * rule.weight_decay),
             scale = static_cast<T>(rule.gradient_scale), beta1 = static_cast<T>(rule.beta1),
             rest1 = static_cast<T>(1 - rule.beta1), beta2 = static_cast<T>(rule.beta2),
             rest2 = static_cast<T>(1 - rule.beta2);
  for_each_vector<T>(size, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, scale));
    const auto m = hn::LoadU(d, moment + i);
    const auto mean = hn::Add(hn::Mul(m, hn::Set(d, beta1)), hn::Mul(g, hn::Set(d, rest1)));
    const auto zero = hn::Zero(d);
    const auto move = hn::IfThenElse(hn::Eq(mean, zero), zero, hn::CopySign(hn::Set(d, lr), mean));
    const auto p = hn::Mul(hn::LoadU(d, parameter + i), hn::Set(d, shrink));
    hn::StoreU(hn::Add(hn::Mul(m, hn::Set(d, beta2)), hn::Mul(g, hn::Set(d, rest2))), d,
               moment + i);
    hn::StoreU(hn::Sub(p, move), d, parameter + i);
  });
}

HWY_INLINE hn::Vec<hn::ScalableTag<double>> load_double(const double* x) {
  return hn::LoadU(hn::ScalableTag<double>(), x);
}
HWY_INLINE hn::Vec<hn::ScalableTag<double>> load_double(const float* x) {
  const hn::ScalableTag<double> d;
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, hn::ScalableTag<double>>(), x));
}

template <class T>
double sum_of_squares(const T* x, std::int64_t size) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);  // two chains hide the latency of the addition
  std::int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const auto a = load_double(x + i), b = load_double(x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

template <class T>
HWY_INLINE const Update<T>* table_of() {
  static constexpr Update<T> kTable = {adamw<T>, adam<T>, sgd<T>, lion<T>, sum_of_squares<T>};
  return &kTable;
}

const Update<float>* update_f32() {
  return table_of<float>();
}
const Update<double>* update_f64() {
  return table_of<double>();
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(update_f32);
HWY_EXPORT(update_f64);

template <>
const Update<float>& update<float>() {
  return *HWY_DYNAMIC_DISPATCH(update_f32)();
}
template <>
const Update<double>& update<double>() {
  return *HWY_DYNAMIC_DISPATCH(update_f64)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
