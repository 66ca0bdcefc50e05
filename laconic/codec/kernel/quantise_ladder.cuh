// codec/kernel/quantise_ladder.cuh — from numbers to codes with fewer operations than exact.hpp
// has.
//
// The codes are those of exact::round_to_code(), bit by bit, and the ways there are not. Codes are
// floats whose low bits are the code, so they are put side by side as sums of bits, and what else
// the floats are is subtracted once for all (QuantiseTask::surplus). 4 bits rounded at random are
// made as sixteenths of codes, which is another such float and so another surplus: take a task
// through known() before anything is asked of it.
#pragma once

#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

// The ways to a code that have kernels of their own. `random` is that of the grid `ends` where 4
// bits are rounded at random: with no memory to wait for, arithmetic decides how long that takes,
// and what is known need not be asked for every four.
enum class Way { tread, ends, random };

// There codes are made as sixteenths, of which one operation cuts off those below 0. Where this is
// added floats are the sixteenths.
inline constexpr float kToSixteenths = exact::kToInteger / 16;

// Whether codes and scales are of the usual kind.
inline bool is_usual(const QuantiseTask& task) {
  return task.codec.bits == 4 && task.codec.scale == ScaleType::f32 && task.codes.alignment >= 4;
}

// The same task, where that is a constant.
__device__ __forceinline__ QuantiseTask usual(QuantiseTask task) {
  task.codec.bits = task.codes.bits = 4;
  task.codec.scale = ScaleType::f32;
  task.codes.alignment = 4;
  task.radix = 16;
  return task;
}

template <Way kWay>
__device__ __forceinline__ QuantiseTask known(QuantiseTask task) {
  if constexpr (kWay == Way::random) {
    task = usual(task);
    task.rule.is_stochastic = true;
    task.codec.grid = Grid::ends;
    task.surplus = exact::bits_of(kToSixteenths) * 0x1111u;
  }
  return task;
}

// What turns numbers into codes, on one of two grids.
struct Ladder {
  float factor, middle, step, low, high;
};

// Of a dead group all codes are that of zero, whatever it holds.
template <Way kWay>
__device__ __forceinline__ Ladder ladder_of(const QuantiseTask& task, float scale) {
  if constexpr (kWay == Way::tread) {
    if (scale == 0 || exact::is_nan(scale)) return {0, 0, scale, 0, 0};
    // A step is a quotient by a power of two, so a product is as exact.
    return {task.rule.half / scale, 0, scale * task.inverse, task.rule.low, task.rule.high};
  }
  const Level level = exact::encode_level(task.codec, scale);
  if constexpr (kWay == Way::random) return {level.encode_factor, level.middle / 16, 0, 0, 0};
  if (level.encode_factor == 0) return {0, level.middle, level.step, 0, 0};
  return {level.encode_factor, level.middle, level.step, task.rule.low, task.rule.high};
}

// y + noise_of(word), or, with another unit, a part of it. That is a product without rounding, so
// it may be fused with the sum.
__device__ __forceinline__ float with_noise(float y, std::uint32_t word, float unit = 0x1p-24f) {
  return fmaf(static_cast<float>(static_cast<std::int32_t>(word >> 8)), unit, y);
}

// y / 16 + middle, but at least 0 and at most 1; NaN becomes 0.
__device__ __forceinline__ float saturated(float y, float middle) {
#ifdef __CUDA_ARCH__
  float sum;
  asm("fma.rn.ftz.sat.f32 %0, %1, 0f3D800000, %2;" : "=f"(sum) : "f"(y), "f"(middle));
  return sum;
#else
  return fminf(fmaxf(fmaf(y, 0x1p-4f, middle), 0.0f), 1.0f);
#endif
}

// As round_on(), in sixteenths: the same numbers with another exponent, so roundings are the same.
// What is below 0 is cut off before there is noise, which is less than 1: it becomes 0 either way.
__device__ __forceinline__ float round_to_sixteenths(const Ladder& ladder, float v,
                                                     std::uint32_t word) {
  const float y = saturated(v * ladder.factor, ladder.middle);
  return __fadd_rd(fminf(with_noise(y, word, 0x1p-28f), 0.9375f), kToSixteenths);
}

// As round_to_code(): kToInteger plus the code.
template <Way kWay>
__device__ __forceinline__ float round_on(const Ladder& ladder, const exact::Rule& rule, float v,
                                          std::uint32_t word) {
  if constexpr (kWay == Way::random) return round_to_sixteenths(ladder, v, word);
  float y = v * ladder.factor;
  if constexpr (kWay != Way::tread) {
    y = y + ladder.middle;
    if (rule.is_stochastic)
      // Limits are integers, so it is all the same whether they or rounding down come first.
      return __fadd_rd(fminf(fmaxf(with_noise(y, word), ladder.low), ladder.high),
                       exact::kToInteger);
  }
  return fminf(fmaxf(y, ladder.low), ladder.high) + rule.to_integer;
}

}  // namespace laconic::kernel
