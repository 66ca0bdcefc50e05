// Quantise: groups that are not for quantise_teams.cu: the small ones, of which a warp has several,
// and with a memory the largest, whose numbers would not fit the registers of a thread there.
// Numbers become codes by exact.hpp as it stands. A warp makes codes in pairs of rows of 128
// elements, because lanes hold fours and only eight codes fill whole bytes whatever the bits: all
// of its lanes must come to store_pair(), also those that have no element left.
#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

namespace {

// What a four becomes: its codes, and, in place, what is remembered.
template <Memory kMemory>
__device__ __forceinline__ std::uint32_t encode_four(const QuantiseTask& task, const Level& level,
                                                     std::uint64_t i, std::uint64_t count,
                                                     Four& sent, const Four& before) {
  exact::FourWords words = {{0, 0, 0, 0}};
  if (task.rule.is_stochastic) words = exact::philox_words(task.noise, i / 4);
  std::uint32_t codes = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < 4; ++j) {
    const float rounded =
        exact::round_to_code(task.rule, sent.at[j], level, exact::noise_of(words.at[j]));
    const std::uint32_t code = static_cast<std::uint64_t>(j) < count ? exact::code_of(rounded) : 0;
    codes = codes << task.codec.bits | code;
    if constexpr (kMemory != Memory::none)
      sent.at[j] =
          remembered(kMemory, sent.at[j], exact::decoded(task.rule, rounded, level), before.at[j]);
  }
  return codes;
}

template <Memory kMemory>
__device__ __forceinline__ void store_after(const QuantiseTask& task, std::uint64_t i,
                                            std::uint64_t count, const Four& after,
                                            bool& is_unsound) {
  if constexpr (kMemory == Memory::none) return;
  store_floats(task.source.after, i, after, count, task.is_aligned);
  for (int j = 0; j < 4; ++j)
    is_unsound |= static_cast<std::uint64_t>(j) < count && !exact::is_finite(after.at[j]);
}

template <Memory kMemory, int kSteps>
__device__ __forceinline__ void load_run(const QuantiseTask& task, std::uint64_t first,
                                         unsigned lane, unsigned lanes, std::uint64_t size,
                                         Four (&sent)[kSteps], Four (&before)[kSteps]) {
  const DeviceSource& source = task.source;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int s = 0; s < kSteps; ++s) {
    const std::uint64_t at = (std::uint64_t{lanes} * s + lane) * 4;
    const std::uint64_t left = at < size ? size - at : 0;
    sent[s] = load_four(source.dtype, source.x, first + at, left, true);
    if constexpr (kMemory != Memory::none)
      before[s] = load_four(Dtype::f32, source.before, first + at, left, true);
  }
  if constexpr (kMemory != Memory::none) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kSteps; ++s)
      for (int j = 0; j < 4; ++j) sent[s].at[j] = combined(kMemory, sent[s].at[j], before[s].at[j]);
  }
}

// Groups of a power of two from 8 to 128: a warp takes 256 elements, lane l the fours l and 32 + l.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) quantise_small(QuantiseTask task) {
  const unsigned lane = threadIdx.x % 32, lanes = static_cast<unsigned>(task.run / 4);
  const std::uint64_t warps = thread_total() / 32;
  bool is_unsound = false;
  for (std::uint64_t first = thread_number() / 32 * 256; first < task.elements;
       first += warps * 256) {
    const std::uint64_t size = task.elements - first < 256 ? task.elements - first : 256;
    Four sent[2], before[2];
    load_run<kMemory, 2>(task, first, lane, 32, size, sent, before);
    std::uint32_t codes[2];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < 2; ++s) {
      const std::uint64_t at = (32u * s + lane) * 4;
      const std::uint64_t left = at < size ? size - at : 0;
      Extremes extremes{0, kLowest};
      raise(extremes, sent[s], left);
      for (unsigned by = 1; by < lanes; by *= 2) {
        const std::int32_t magnitude = __shfl_xor_sync(kAllLanes, extremes.magnitude, by);
        const std::int32_t highest = __shfl_xor_sync(kAllLanes, extremes.highest, by);
        if (magnitude > extremes.magnitude) extremes.magnitude = magnitude;
        if (highest > extremes.highest) extremes.highest = highest;
      }
      const float scale = exact::choose_scale(task.codec, extremes);
      const Level level = exact::encode_level(task.codec, scale);
      if (lane % lanes == 0 && left > 0)
        store_scale(task.codec, task.scales, (first + at) / task.run, scale);
      codes[s] = encode_four<kMemory>(task, level, first + at, left, sent[s], before[s]);
      store_after<kMemory>(task, first + at, left, sent[s], is_unsound);
    }
    task.codes.store_pair(first, first + 128, lane, size, 128 < size ? size - 128 : 0, codes[0],
                          codes[1]);
  }
  tell(task, is_unsound);
}

struct BlockExtremes {
  Extremes of_warp[kWarps];
};

// One group for each kLanes threads: a warp, or the whole block.
template <Memory kMemory, unsigned kLanes, int kSteps>
__global__ void __launch_bounds__(kThreads) quantise_group(QuantiseTask task) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t teams = thread_total() / kLanes;
  bool is_unsound = false;
  for (std::uint64_t group = thread_number() / kLanes; group < task.groups; group += teams) {
    const std::uint64_t first = group * task.run;
    const std::uint64_t size = task.elements - first < task.run ? task.elements - first : task.run;
    Four sent[kSteps], before[kSteps];
    load_run<kMemory, kSteps>(task, first, lane, kLanes, size, sent, before);
    Extremes extremes{0, kLowest};
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kSteps; ++s) {
      const std::uint64_t at = (kLanes * s + lane) * 4;
      raise(extremes, sent[s], at < size ? size - at : 0);
    }
    extremes = of_warp(extremes);
    if constexpr (kLanes > 32) {
      auto& shared = shared_memory<BlockExtremes>();
      if (threadIdx.x % 32 == 0) shared.of_warp[threadIdx.x / 32] = extremes;
      __syncthreads();
      for (unsigned w = 0; w < kWarps; ++w) {
        const Extremes other = shared.of_warp[w];
        if (other.magnitude > extremes.magnitude) extremes.magnitude = other.magnitude;
        if (other.highest > extremes.highest) extremes.highest = other.highest;
      }
      __syncthreads();
    }
    const float scale = exact::choose_scale(task.codec, extremes);
    const Level level = exact::encode_level(task.codec, scale);
    if (lane == 0) store_scale(task.codec, task.scales, group, scale);
    std::uint32_t codes[kSteps];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kSteps; ++s) {
      const std::uint64_t at = (kLanes * s + lane) * 4;
      const std::uint64_t left = at < size ? size - at : 0;
      codes[s] = encode_four<kMemory>(task, level, first + at, left, sent[s], before[s]);
      store_after<kMemory>(task, first + at, left, sent[s], is_unsound);
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kSteps; s += 2) {
      // The 128 elements of this warp in both steps.
      const std::uint64_t a = (kLanes * s + lane / 32 * 32) * 4, b = a + kLanes * 4;
      task.codes.store_pair(first + a, first + b, lane % 32, a < size ? size - a : 0,
                            b < size ? size - b : 0, codes[s], codes[s + 1]);
    }
  }
  tell(task, is_unsound);
}

template <Memory kMemory>
bool quantise_by_groups_with(const QuantiseTask& task, Stream stream) {
  const std::uint64_t run = task.run;
  const bool is_small = run == 8 || run == 16 || run == 32 ||
                        ((run == 64 || run == 128) && task.codec.grid != Grid::tread);
  if (is_small) {
    launch_over(quantise_small<kMemory>, parts_of(task.elements, 256 * kWarps), kThreads, stream,
                task);
    return true;
  }
  if constexpr (kMemory != Memory::none)
    if (run > 4096 && run <= 8192 && (run % 8 == 0 || task.groups <= 1)) {
      launch_over<BlockExtremes>(quantise_group<kMemory, kThreads, 8>, task.groups, kThreads,
                                 stream, task);
      return true;
    }
  return false;
}

}  // namespace

bool quantise_by_groups(const QuantiseTask& task, Stream stream) {
  switch (task.source.memory) {
    case Memory::none: return quantise_by_groups_with<Memory::none>(task, stream);
    case Memory::feedback: return quantise_by_groups_with<Memory::feedback>(task, stream);
    case Memory::difference: return quantise_by_groups_with<Memory::difference>(task, stream);
  }
  return false;
}

}  // namespace laconic::kernel
