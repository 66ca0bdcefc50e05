// Quantise: whatever no other way takes, such as groups that are no whole eights or very large,
// channels whose rows are no whole eights, the grid `artefact`, and tensors that are not aligned.
// Three simple passes over memory: extremes, by atomic maxima, which do not mind the order; levels;
// codes. Nothing here may assume that anything is aligned, or that fours are of one group.
#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

namespace {

struct AnyTask {
  QuantiseTask task;
  bool is_channel;
  Extremes* extremes;
  Level* levels;
};

__global__ void __launch_bounds__(kThreads)
    clear_extremes(Extremes* extremes, std::uint64_t groups) {
  for (std::uint64_t i = thread_number(); i < groups; i += thread_total())
    extremes[i] = {0, kLowest};
}

__device__ __forceinline__ float sent_one(const QuantiseTask& task, std::uint64_t i) {
  const DeviceSource& source = task.source;
  const float x = load_one(source.dtype, source.x, i);
  return source.memory == Memory::none ? x : combined(source.memory, x, source.before[i]);
}

__device__ __forceinline__ void raise_one(Extremes& extremes, float value) {
  raise(extremes, {{value, 0, 0, 0}}, 1);
}

// A warp for each piece of a run.
constexpr std::uint64_t kPiece = 1024;

__global__ void __launch_bounds__(kThreads) any_run_extremes(AnyTask any) {
  const QuantiseTask& task = any.task;
  const std::uint64_t pieces = parts_of(task.run, kPiece), warps = thread_total() / 32;
  for (std::uint64_t w = thread_number() / 32; w < task.groups * pieces; w += warps) {
    const std::uint64_t group = w / pieces, begin = group * task.run + w % pieces * kPiece;
    std::uint64_t end = (group + 1) * task.run;
    if (end > task.elements) end = task.elements;
    if (end > begin + kPiece) end = begin + kPiece;
    Extremes extremes{0, kLowest};
    for (std::uint64_t i = begin + threadIdx.x % 32; i < end; i += 32)
      raise_one(extremes, sent_one(task, i));
    extremes = of_warp(extremes);
    if (threadIdx.x % 32 == 0) raise_shared(any.extremes[group], extremes);
  }
}

// Threads are columns; a narrow row is repeated, so that a block has work for all its threads. Each
// takes kRows rows, several loads at a time.
constexpr unsigned kRows = 64;

__global__ void __launch_bounds__(kThreads) any_channel_extremes(AnyTask any, std::uint64_t width) {
  const QuantiseTask& task = any.task;
  const std::uint64_t rows = parts_of(task.elements, width), strips = parts_of(width, kThreads);
  for (std::uint64_t b = blockIdx.x; b < strips * parts_of(rows, kRows); b += gridDim.x) {
    const std::uint64_t column = b % strips * kThreads + threadIdx.x;
    if (column >= width) continue;
    const std::uint64_t row = b / strips * kRows;
    Extremes extremes{0, kLowest};
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (std::uint64_t r = row; r < row + kRows; ++r) {
      const std::uint64_t i = r * width + column;
      if (i < task.elements) raise_one(extremes, sent_one(task, i));
    }
    raise_shared(any.extremes[column % task.run], extremes);
  }
}

__global__ void __launch_bounds__(kThreads) any_levels(AnyTask any) {
  const QuantiseTask& task = any.task;
  for (std::uint64_t g = thread_number(); g < task.groups; g += thread_total()) {
    const float scale = exact::choose_scale(task.codec, any.extremes[g]);
    store_scale(task.codec, task.scales, g, scale);
    any.levels[g] = exact::encode_level(task.codec, scale);
  }
}

// A thread makes eight codes.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) any_codes(AnyTask any) {
  const QuantiseTask& task = any.task;
  const std::uint64_t eights = parts_of(task.elements, 8);
  bool is_unsound = false;
  for (std::uint64_t e = thread_number(); e < eights; e += thread_total()) {
    std::uint64_t group = any.is_channel ? 8 * e % task.run : 8 * e / task.run;
    std::uint64_t within = any.is_channel ? 0 : 8 * e % task.run;
    std::uint64_t word = 0;
    Level level = any.levels[group];
    for (int half = 0; half < 2; ++half) {
      exact::FourWords words = {{0, 0, 0, 0}};
      if (task.rule.is_stochastic) words = exact::philox_words(task.noise, 2 * e + half);
      for (int j = 0; j < 4; ++j) {
        const std::uint64_t i = 8 * e + 4 * half + j;
        std::uint32_t code = 0;
        if (i < task.elements) {
          const float before = kMemory == Memory::none ? 0 : task.source.before[i];
          const float sent =
              combined(kMemory, load_one(task.source.dtype, task.source.x, i), before);
          const float rounded =
              exact::round_to_code(task.rule, sent, level, exact::noise_of(words.at[j]));
          code = exact::code_of(rounded);
          if constexpr (kMemory != Memory::none) {
            const float after =
                remembered(kMemory, sent, exact::decoded(task.rule, rounded, level), before);
            task.source.after[i] = after;
            is_unsound |= !exact::is_finite(after);
          }
        }
        word = word << task.codec.bits | code;
        if (any.is_channel) {
          group = group + 1 == task.run ? 0 : group + 1;
          level = any.levels[group];
        } else if (++within == task.run) {
          within = 0;
          if (++group < task.groups) level = any.levels[group];
        }
      }
    }
    task.codes.store_eight(e, word, task.elements - 8 * e);
  }
  tell(task, is_unsound);
}

}  // namespace

void quantise_by_passes(const QuantiseTask& task, Extremes* extremes, Level* levels,
                        Stream stream) {
  const AnyTask any{task, task.codec.group == ScaleGroup::channel, extremes, levels};
  launch_over(clear_extremes, parts_of(task.groups, kThreads), kThreads, stream, any.extremes,
              task.groups);
  if (any.is_channel) {
    const std::uint64_t width = task.run * (task.run < kThreads ? kThreads / task.run : 1);
    launch_over(any_channel_extremes,
                parts_of(width, kThreads) * parts_of(parts_of(task.elements, width), kRows),
                kThreads, stream, any, width);
  } else {
    launch_over(any_run_extremes, parts_of(task.groups * parts_of(task.run, kPiece), kWarps),
                kThreads, stream, any);
  }
  launch_over(any_levels, parts_of(task.groups, kThreads), kThreads, stream, any);
  const std::uint64_t blocks = parts_of(task.elements, 8 * kThreads);
  switch (task.source.memory) {
    case Memory::none: return launch_over(any_codes<Memory::none>, blocks, kThreads, stream, any);
    case Memory::feedback:
      return launch_over(any_codes<Memory::feedback>, blocks, kThreads, stream, any);
    case Memory::difference:
      return launch_over(any_codes<Memory::difference>, blocks, kThreads, stream, any);
  }
}

}  // namespace laconic::kernel
