// Chains of multiply-adds, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/machine/kernel/peak.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "laconic/base/clock.hpp"
#include "laconic/machine/peak.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide a latency of four to five cycles at two operations a cycle and still fit, with
// the two constants, into the sixteen registers of AVX2. Named one by one because SVE has no arrays
// of vectors. x <- x m + c has the fixed point 1, so nothing overflows or dies out.
// Returns the number of floating-point operations; the sum goes to `sink`.
template <class T>
HWY_INLINE double multiply_add_chains(std::int64_t rounds, T* sink) {
  const hn::ScalableTag<T> d;
  const auto m = hn::Set(d, static_cast<T>(0.9375));
  const auto c = hn::Set(d, static_cast<T>(0.0625));
  auto x0 = hn::Iota(d, T{0});
  auto x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0, x7 = x0, x8 = x0, x9 = x0, x10 = x0,
       x11 = x0;
  // Equal starts would let a compiler merge the chains.
  x1 = hn::Add(x1, c), x2 = hn::Add(x1, c), x3 = hn::Add(x2, c), x4 = hn::Add(x3, c);
  x5 = hn::Add(x4, c), x6 = hn::Add(x5, c), x7 = hn::Add(x6, c), x8 = hn::Add(x7, c);
  x9 = hn::Add(x8, c), x10 = hn::Add(x9, c), x11 = hn::Add(x10, c);
  for (std::int64_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, m, c), x1 = hn::MulAdd(x1, m, c), x2 = hn::MulAdd(x2, m, c);
    x3 = hn::MulAdd(x3, m, c), x4 = hn::MulAdd(x4, m, c), x5 = hn::MulAdd(x5, m, c);
    x6 = hn::MulAdd(x6, m, c), x7 = hn::MulAdd(x7, m, c), x8 = hn::MulAdd(x8, m, c);
    x9 = hn::MulAdd(x9, m, c), x10 = hn::MulAdd(x10, m, c), x11 = hn::MulAdd(x11, m, c);
  }
  x0 = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
  x6 = hn::Add(hn::Add(hn::Add(x6, x7), hn::Add(x8, x9)), hn::Add(x10, x11));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(x0, x6)));
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

double chains_f32(std::int64_t rounds, float* sink) {
  return multiply_add_chains<float>(rounds, sink);
}
double chains_f64(std::int64_t rounds, double* sink) {
  return multiply_add_chains<double>(rounds, sink);
}

}  // namespace laconic::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic {

HWY_EXPORT(chains_f32);
HWY_EXPORT(chains_f64);

namespace {

// The most of (amount / 1e9) per second over short runs within `seconds`.
template <class Run>
double best_rate(double seconds, const Run& run) {
  double best = 0;
  const Stopwatch total;
  do {
    const Stopwatch watch;
    const double amount = run();
    best = std::max(best, amount / watch.seconds() / 1e9);
  } while (total.seconds() < seconds);
  return best;
}

double dependent_additions(std::int64_t rounds) {
  std::uint64_t sum = 0;
  [[maybe_unused]] const std::uint64_t one = 1;
  for (std::int64_t i = 0; i < rounds; ++i) {
    // Register operands: some processors fold chains of additions of a constant.
#if defined(__x86_64__)
    asm volatile(
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
        : "+r"(sum)
        : "r"(one));
#elif defined(__aarch64__)
    asm volatile(
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\t"
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1"
        : "+r"(sum)
        : "r"(one));
#endif
  }
  return static_cast<double>(sum);  // cycles; 0 on other processors: unknown
}

}  // namespace

CorePeak measure_core_peak(double seconds_each) {
  constexpr std::int64_t kRounds = 200'000;  // about a millisecond
  volatile double keep = 0;
  float f32 = 0;
  double f64 = 0;
  CorePeak peak;
  peak.clock_ghz = best_rate(seconds_each, [] { return dependent_additions(kRounds); });
  peak.f32_gflops =
      best_rate(seconds_each, [&] { return HWY_DYNAMIC_DISPATCH(chains_f32)(kRounds, &f32); });
  peak.f64_gflops =
      best_rate(seconds_each, [&] { return HWY_DYNAMIC_DISPATCH(chains_f64)(kRounds, &f64); });
  keep = f32 + f64;
  static_cast<void>(keep);
  return peak;
}

}  // namespace laconic
#endif  // HWY_ONCE
