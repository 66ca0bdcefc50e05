// The vectorised fills of base/philox.hpp, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/base/kernel/random.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "laconic/base/kernel/philox-inl.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/quantile.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Double = hn::ScalableTag<double>;
using Vec = hn::Vec<Double>;

void fill_words(Key key, std::uint64_t first, std::uint32_t* out, std::size_t total) {
  for_each_word_run(key, first, total,
                    [&](const std::uint32_t* words, std::size_t begin, std::size_t count) {
                      std::copy(words, words + count, out + begin);
                    });
}

HWY_INLINE Vec to_uniform(hn::Vec<hn::Repartition<std::uint64_t, Double>> bits) {
  const Double d;
  const hn::Repartition<std::int64_t, Double> di;
  const Vec whole = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<11>(bits)));
  return hn::Mul(hn::Add(whole, hn::Set(d, 0.5)), hn::Set(d, 0x1p-53));
}

template <std::size_t N>
HWY_INLINE Vec polynomial(const double (&a)[N], Vec r) {
  const Double d;
  Vec sum = hn::Set(d, a[N - 1]);
  for (int i = static_cast<int>(N) - 2; i >= 0; --i)
    sum = hn::Add(hn::Mul(sum, r), hn::Set(d, a[i]));
  return sum;
}

HWY_INLINE Vec fixed_log(Vec x) {
  const Double d;
  const hn::Repartition<std::uint64_t, Double> du;
  const hn::Repartition<std::int64_t, Double> di;
  const auto bits = hn::BitCast(du, x);
  const auto shifted = hn::Add(bits, hn::Set(du, quantile::kSqrtHalfCarry));
  const auto exponent = hn::Sub(hn::BitCast(di, hn::ShiftRight<52>(shifted)), hn::Set(di, 1023));
  const Vec m = hn::BitCast(d, hn::Sub(bits, hn::BitCast(du, hn::ShiftLeft<52>(exponent))));
  const Vec one = hn::Set(d, 1.0);
  const Vec s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const Vec z = hn::Mul(s, s);
  const Vec series = polynomial(quantile::kAtanh, z);
  const Vec log_m = hn::Mul(hn::Add(hn::Mul(hn::Mul(s, z), series), s), hn::Set(d, 2.0));
  return hn::Add(log_m, hn::Mul(hn::ConvertTo(d, exponent), hn::Set(d, quantile::kLn2)));
}

HWY_INLINE Vec inverse_normal(Vec p) {
  using namespace quantile;
  const Double d;
  const Vec q = hn::Sub(p, hn::Set(d, 0.5));
  const Vec r = hn::Sub(hn::Set(d, 0.180625), hn::Mul(q, q));
  const Vec centre = hn::Div(hn::Mul(q, polynomial(kA, r)), polynomial(kB, r));
  const auto is_tail = hn::Gt(hn::Abs(q), hn::Set(d, 0.425));
  if (hn::AllFalse(d, is_tail)) return centre;

  const auto is_low = hn::Lt(q, hn::Zero(d));
  const Vec tail_p = hn::IfThenElse(is_low, p, hn::Sub(hn::Set(d, 1.0), p));
  const Vec t = hn::Sqrt(hn::Sub(hn::Zero(d), fixed_log(tail_p)));
  const Vec near = hn::Sub(t, hn::Set(d, 1.6));
  Vec tail = hn::Div(polynomial(kC, near), polynomial(kD, near));
  const auto is_far = hn::Gt(t, hn::Set(d, 5.0));
  if (!hn::AllFalse(d, is_far)) {
    const Vec far = hn::Sub(t, hn::Set(d, 5.0));
    tail = hn::IfThenElse(is_far, hn::Div(polynomial(kE, far), polynomial(kF, far)), tail);
  }
  tail = hn::IfThenElse(is_low, hn::Neg(tail), tail);
  return hn::IfThenElse(is_tail, tail, centre);
}

// Calls use(values, begin, count) for runs of uniforms or normals that together are
// [first, first + total), begin counting from 0.
template <bool kNormal, class Use>
HWY_INLINE void for_each_draw(Key key, std::uint64_t first, std::size_t total, const Use& use) {
  const Double d;
  const hn::Repartition<std::uint64_t, Double> du;
  constexpr std::size_t kDraws = kPhiloxWords / 2;
  const std::size_t step = 2 * hn::Lanes(PhiloxTag());  // two words a draw
  HWY_ALIGN std::uint64_t bits[kDraws];
  HWY_ALIGN double values[kDraws];
  std::size_t skip = first % 2;  // two draws a block
  std::uint64_t block = first / 2;
  for (std::size_t done = 0; done < total; block += step / 2, skip = 0) {
    philox_words(key, block, reinterpret_cast<std::uint32_t*>(bits));
    for (std::size_t i = 0; i < step; i += hn::Lanes(d)) {
      Vec v = to_uniform(hn::Load(du, bits + i));
      if constexpr (kNormal) v = inverse_normal(v);
      hn::Store(v, d, values + i);
    }
    const std::size_t count = std::min(step - skip, total - done);
    use(values + skip, done, count);
    done += count;
  }
}

void fill_uniform(Key key, std::uint64_t first, double* out, std::size_t total) {
  for_each_draw<false>(key, first, total,
                       [&](const double* v, std::size_t begin, std::size_t count) {
                         std::copy(v, v + count, out + begin);
                       });
}

template <class T>
HWY_INLINE void fill_normal_as(Key key, std::uint64_t first, double mean, double deviation, T* out,
                               std::size_t total) {
  for_each_draw<true>(key, first, total,
                      [&](const double* v, std::size_t begin, std::size_t count) {
                        for (std::size_t i = 0; i < count; ++i)
                          out[begin + i] = static_cast<T>(mean + deviation * v[i]);
                      });
}

void fill_normal_f64(Key key, std::uint64_t first, double mean, double deviation, double* out,
                     std::size_t total) {
  fill_normal_as(key, first, mean, deviation, out, total);
}
void fill_normal_f32(Key key, std::uint64_t first, double mean, double deviation, float* out,
                     std::size_t total) {
  fill_normal_as(key, first, mean, deviation, out, total);
}

}  // namespace laconic::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic {

HWY_EXPORT(fill_words);
HWY_EXPORT(fill_uniform);
HWY_EXPORT(fill_normal_f64);
HWY_EXPORT(fill_normal_f32);

void fill_words(Key key, std::uint64_t first, std::span<std::uint32_t> out) {
  HWY_DYNAMIC_DISPATCH(fill_words)(key, first, out.data(), out.size());
}
void fill_uniform(Key key, std::uint64_t first, std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(fill_uniform)(key, first, out.data(), out.size());
}
void fill_normal(Key key, std::uint64_t first, double mean, double deviation,
                 std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(fill_normal_f64)(key, first, mean, deviation, out.data(), out.size());
}
void fill_normal(Key key, std::uint64_t first, double mean, double deviation,
                 std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(fill_normal_f32)(key, first, mean, deviation, out.data(), out.size());
}

}  // namespace laconic
#endif  // HWY_ONCE
