// model/kernel/gelu-inl.hpp — both kinds of GELU on vectors, for use inside Highway kernels.
//
// Included once per target by a file that went through hwy/foreach_target.h,
// hence the unusual guard.
#if defined(LACONIC_MODEL_KERNEL_GELU_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LACONIC_MODEL_KERNEL_GELU_INL
#undef LACONIC_MODEL_KERNEL_GELU_INL
#else
#define LACONIC_MODEL_KERNEL_GELU_INL
#endif

#include <hwy/highway.h>

#include "laconic/model/kernel/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x gate(x), by tanh.
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

// Coefficients of the polynomial in ExactGelu::tail, highest power first.
template <class T>
struct NormalTail;
template <>
struct NormalTail<float> {
  static constexpr float kCoefficients[] = {1.18422275e-5f,  0.000109230882f, -0.000237487304f,
                                            -0.00217314097f, 0.00162099008f,  0.0503284862f,
                                            0.221743761f,    0.55670408f,     0.92189227f};
};
template <>
struct NormalTail<double> {
  static constexpr double kCoefficients[] = {
      7.5018187505905614e-11,  2.9268788402577472e-10, -1.861609916068518e-9,
      -4.341291996031354e-10,  2.1051483626433254e-8,  -4.2428827394127284e-8,
      -1.3584627019066679e-7,  7.7778412223259527e-7,  1.2391904902824134e-7,
      -9.99981797086921e-6,    1.1985672575860623e-5,  0.00012924698947456117,
      -0.00023773045916836068, -0.0021875559036361508, 0.0016210964447047494,
      0.050332409359356223,    0.22174374597923143,    0.55670378889765482,
      0.92189227028625365};
};

// x Phi(x), Phi the distribution function of the standard normal.
template <class T>
struct ExactGelu {
  // exp(-x^2 / 2)
  static HWY_INLINE Vec<T> bell(Vec<T> x) {
    return clamped_exp<T>(hn::Mul(hn::Set(Tag<T>(), T(-0.5)), hn::Mul(x, x)));
  }
  // Phi(x), given bell(x). For a = |x|, Phi(-a) = bell(a) u Q(s): u = 1 / (a + 3.5), and s is u
  // mapped to [-1, 1] for a between 9.5 and 0. There Q is the Chebyshev interpolant (at 80 nodes,
  // in 60 digits) cut after degree 8 or 18, which errs by 4e-8 and 2e-16. Beyond 9.5 Phi(-a) is
  // below 1e-20, and only its order is right.
  static HWY_INLINE Vec<T> gate(Vec<T> x, Vec<T> bell_of_x) {
    const Tag<T> d;
    const Vec<T> one = hn::Set(d, T(1));
    const Vec<T> a = hn::Min(hn::Abs(x), hn::Set(d, T(9.5)));
    const Vec<T> u = hn::Div(one, hn::Add(a, hn::Set(d, T(3.5))));
    const Vec<T> s =
        hn::MulAdd(u, hn::Set(d, T(9.5789473684210526)), hn::Set(d, T(-1.7368421052631579)));
    Vec<T> q = hn::Zero(d);
    for (const T coefficient : NormalTail<T>::kCoefficients)
      q = hn::MulAdd(q, s, hn::Set(d, coefficient));
    const Vec<T> tail = hn::Mul(hn::Mul(bell_of_x, u), q);
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail);
  }
  static HWY_INLINE Vec<T> value(Vec<T> x) { return hn::Mul(x, gate(x, bell(x))); }
  // Phi(x) + x bell(x) / sqrt(2 pi)
  static HWY_INLINE Vec<T> slope(Vec<T> x) {
    const Vec<T> b = bell(x);
    const Vec<T> density = hn::Mul(b, hn::Set(Tag<T>(), T(0.3989422804014327)));
    return hn::MulAdd(x, density, gate(x, b));
  }
};

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard
