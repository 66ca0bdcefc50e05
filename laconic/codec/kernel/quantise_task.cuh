// codec/kernel/quantise_task.cuh — what the ways to quantise on a GPU have in common, not rotated.
//
// A way is a file with kernels and a function that says whether a task is for it. The order in
// which quantise.cu asks them is part of their conditions: none repeats what an earlier one takes.
// All make the same bytes, those of the CPU, so a way is chosen by speed alone.
#pragma once

#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/code_stream.cuh"

#ifdef __CUDACC__
#define LACONIC_UNROLL_STEPS _Pragma("unroll")
#else
#define LACONIC_UNROLL_STEPS
#endif

namespace laconic::kernel {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarps = kThreads / 32;
inline constexpr std::int32_t kLowest = -2147483647 - 1;

struct QuantiseTask {
  Quantise codec;
  exact::Rule rule;
  Key noise;
  float inverse;  // 2 / 2^bits
  // Four floats kToInteger + code, as bits and each weighed by a power of the radix, are the codes
  // side by side and a surplus.
  std::uint32_t radix, surplus;
  std::uint64_t elements, groups, run;
  DeviceSource source;
  bool is_aligned;
  std::byte* scales;
  CodeStream codes;
};

// --- the ways. Those that return false have started nothing.

// Whether a task may be for the first three, where a group stays in registers between finding its
// scale and making its codes, so that memory is read once.
inline bool is_for_registers(const QuantiseTask& task) {
  return task.codec.group != ScaleGroup::channel && task.is_aligned &&
         task.codec.grid != Grid::artefact;
}
// Requires, for these: is_for_registers(), and that those before did not take the task.
bool quantise_by_groups(const QuantiseTask& task, Stream stream);
bool quantise_by_eights(const QuantiseTask& task, Stream stream);
bool quantise_by_teams(const QuantiseTask& task, Stream stream);
// `extremes`: room for those of all groups.
bool quantise_by_strips(const QuantiseTask& task, Extremes* extremes, Stream stream);
// `levels`: the same of levels.
void quantise_by_passes(const QuantiseTask& task, Extremes* extremes, Level* levels, Stream stream);

// --- extremes. A group's are the same in any order and by any number of threads.

// The extremes of a four, of which `count` exist.
__device__ __forceinline__ void raise(Extremes& extremes, const Four& four, std::uint64_t count) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < 4; ++j) {
    if (static_cast<std::uint64_t>(j) >= count) break;
    const auto bits = static_cast<std::int32_t>(exact::bits_of(four.at[j]));
    const std::int32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > extremes.magnitude) extremes.magnitude = magnitude;
    if (bits > extremes.highest) extremes.highest = bits;
  }
}

// The largest as signed and as unsigned numbers: the first is the largest positive, the second the
// negative that is largest by magnitude, if there are any.
__device__ __forceinline__ Extremes extremes_of(std::int32_t highest, std::uint32_t bits) {
  std::int32_t magnitude = highest > 0 ? highest : 0;
  const auto negative = static_cast<std::int32_t>(bits & 0x7FFFFFFF);
  if ((bits & exact::kSignBit) != 0 && negative > magnitude) magnitude = negative;
  return {magnitude, highest};
}

__device__ __forceinline__ Extremes of_warp(Extremes extremes) {
  return {__reduce_max_sync(kAllLanes, extremes.magnitude),
          __reduce_max_sync(kAllLanes, extremes.highest)};
}

__device__ __forceinline__ void raise_shared(Extremes& at, const Extremes& by) {
  if (by.magnitude > 0) atomicMax(&at.magnitude, by.magnitude);
  if (by.highest > kLowest) atomicMax(&at.highest, by.highest);
}

// --- scales

__device__ __forceinline__ void store_scale(const Quantise& codec, std::byte* scales,
                                            std::uint64_t group, float scale) {
  const std::uint32_t stored = exact::stored_scale(codec.scale, scale);
  if (codec.scale == ScaleType::f32)
    reinterpret_cast<std::uint32_t*>(scales)[group] = stored;
  else if (codec.scale == ScaleType::f16)
    reinterpret_cast<std::uint16_t*>(scales)[group] = static_cast<std::uint16_t>(stored);
  else
    reinterpret_cast<std::uint8_t*>(scales)[group] = static_cast<std::uint8_t>(stored);
}

__device__ __forceinline__ float load_scale(const Quantise& codec, const std::byte* scales,
                                            std::uint64_t group) {
  if (codec.scale == ScaleType::f32)
    return exact::loaded_scale(codec.scale, reinterpret_cast<const std::uint32_t*>(scales)[group]);
  if (codec.scale == ScaleType::f16)
    return exact::loaded_scale(codec.scale, reinterpret_cast<const std::uint16_t*>(scales)[group]);
  return exact::loaded_scale(codec.scale, reinterpret_cast<const std::uint8_t*>(scales)[group]);
}

// --- what is remembered

__device__ __forceinline__ void tell(const QuantiseTask& task, bool is_unsound) {
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
}

}  // namespace laconic::kernel
