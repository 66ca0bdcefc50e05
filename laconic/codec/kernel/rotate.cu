// Quantise with rotated blocks. A block of threads takes a tile of 4096 elements, which is one
// rotated block or several: signs and the first stages of the Hadamard transform where lanes hold
// neighbouring fours, the others, through shared memory, where a thread holds every 128th element.
// The order of stages is that of the format, so sums round as on the CPU whoever adds them.
//
// The last block may be shorter; it is cut into powers of two, the largest first, so part p of it
// begins at a multiple of p. An element then takes part in the stages h < p, and its partner i ^ h
// is in the same part.
#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/code_stream.cuh"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kTile = 4096;
constexpr unsigned kEach = kTile / kThreads;  // elements of a thread
constexpr unsigned kSteps = kEach / 4;        // fours of a thread
constexpr unsigned kLeastBlock = 8;
constexpr std::int32_t kLowest = -2147483647 - 1;

struct RotateShared {
  float values[kTile];
  Extremes extremes[kTile / kLeastBlock];
  Level levels[kTile / kLeastBlock];
};

struct RotateTask {
  Quantise codec;
  exact::Rule rule;
  Key signs, noise;
  std::uint64_t elements;
  unsigned block, shift;  // block is 2 to the power of shift
  DeviceSource source;
  bool is_aligned;
  std::byte* scales;
  CodeStream codes;
  SinkView sink;
};

// What decides about the stages of elements: their number in the tile.
struct Parts {
  unsigned block, shift;  // block is 2 to the power of shift
  unsigned whole;         // elements of the tile in blocks that are not cut
  unsigned size;          // elements of the tile

  // The size of the power of two that an element is transformed in.
  __device__ __forceinline__ unsigned part_of(unsigned i) const {
    if (i < whole) return block;
    if (i >= size) return 1;
    unsigned within = i - whole, left = size - whole;
    for (;;) {
      const unsigned power = 1u << (31 - __clz(static_cast<int>(left)));
      if (within < power) return power;
      within -= power;
      left -= power;
    }
  }
};

__device__ __forceinline__ float with_sign(float value, std::uint32_t bit) {
  return exact::float_of(exact::bits_of(value) ^ bit << 31);
}

__device__ __forceinline__ void butterfly(float& low, float& high) {
  const float a = low, b = high;
  low = a + b;
  high = a - b;
}

// Stages 1 ... 64 of the fours at (step * kThreads + thread) * 4.
template <bool kCut>
__device__ __forceinline__ void stages_near(Four (&x)[kSteps], const Parts& parts) {
  const unsigned lane = threadIdx.x % 32;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (unsigned s = 0; s < kSteps; ++s) {
    Four& v = x[s];
    const unsigned i = (s * kThreads + threadIdx.x) * 4;
    if constexpr (!kCut) {
      butterfly(v.at[0], v.at[1]);
      butterfly(v.at[2], v.at[3]);
      butterfly(v.at[0], v.at[2]);
      butterfly(v.at[1], v.at[3]);
    } else {
      if (parts.part_of(i) > 1) butterfly(v.at[0], v.at[1]);
      if (parts.part_of(i + 2) > 1) butterfly(v.at[2], v.at[3]);
      if (parts.part_of(i) > 2) {
        butterfly(v.at[0], v.at[2]);
        butterfly(v.at[1], v.at[3]);
      }
    }
    const unsigned part = kCut ? parts.part_of(i) : parts.block;
    for (unsigned by = 1; by < 32; by *= 2) {
      if (4 * by >= parts.block) break;
      const bool is_upper = (lane & by) != 0;
      for (int j = 0; j < 4; ++j) {
        const float other = __shfl_xor_sync(kAllLanes, v.at[j], by);
        // a - b is a + (-b), zeros included.
        const float changed = other + with_sign(v.at[j], is_upper ? 1 : 0);
        if (!kCut || 4 * by < part) v.at[j] = changed;
      }
    }
  }
}

// Stages 128 ... 2048 of the elements step * 128 + thread.
template <bool kCut>
__device__ __forceinline__ void stages_far(float (&x)[kEach], const Parts& parts) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (unsigned h = 1; h < kEach; h *= 2) {
    if (h * kThreads >= parts.block) break;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kEach; ++s)
      if ((s & h) == 0 && (!kCut || h * kThreads < parts.part_of(s * kThreads + threadIdx.x)))
        butterfly(x[s], x[s + h]);
  }
}

__device__ __forceinline__ float norm_of(unsigned part) {
  return exact::hadamard_norm(31u - static_cast<unsigned>(__clz(static_cast<int>(part))));
}

// Word number (tile + step * 512 + lane * 4 ...) / 32 of the signs, for each step: a warp-step is
// one block of Philox, so lane l draws word l % 4 of step l / 4 and gives it to those who want it.
__device__ __forceinline__ std::uint32_t drawn_signs(const RotateTask& task, std::uint64_t tile) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::uint64_t first = tile / 128 + lane / 4 * (kThreads / 32) + warp;
  const exact::FourWords words = exact::philox_words(task.signs, first);
  const unsigned which = lane % 4;
  return which == 0   ? words.at[0]
         : which == 1 ? words.at[1]
         : which == 2 ? words.at[2]
                      : words.at[3];
}

// The four sign bits of this thread's four in a step, the first element's in the lowest.
__device__ __forceinline__ std::uint32_t signs_of(std::uint32_t drawn, unsigned step) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(kAllLanes, drawn, step * 4 + lane / 8) >> lane % 8 * 4;
}

__device__ __forceinline__ Parts parts_in(const RotateTask& task, std::uint64_t tile) {
  const std::uint64_t left = task.elements - tile;
  const unsigned size = left < kTile ? static_cast<unsigned>(left) : kTile;
  return {task.block, task.shift, size >> task.shift << task.shift, size};
}

template <bool kCut>
__device__ __forceinline__ void rotate_tile(const RotateTask& task, std::uint64_t tile,
                                            const Parts& parts) {
  auto& shared = shared_memory<RotateShared>();
  const float norm = norm_of(task.block);
  {
    Four fours[kSteps];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const unsigned i = (s * kThreads + threadIdx.x) * 4;
      fours[s] = load_four(task.source.dtype, task.source.x, tile + i,
                           i < parts.size ? parts.size - i : 0, task.is_aligned);
    }
    const std::uint32_t drawn = drawn_signs(task, tile);
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const std::uint32_t bits = signs_of(drawn, s);
      for (int j = 0; j < 4; ++j) fours[s].at[j] = with_sign(fours[s].at[j], bits >> j & 1);
    }
    stages_near<kCut>(fours, parts);
    for (unsigned s = 0; s < kSteps; ++s)
      store_floats(shared.values, (s * kThreads + threadIdx.x) * 4, fours[s], 4, true);
    const unsigned groups = kTile >> task.shift;
    for (unsigned g = threadIdx.x; g < groups; g += kThreads) shared.extremes[g] = {0, kLowest};
    __syncthreads();
    float x[kEach];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kEach; ++s) x[s] = shared.values[s * kThreads + threadIdx.x];
    stages_far<kCut>(x, parts);
    // The extremes of what this thread has of each group; then those of the warp, where a group is
    // that large.
    Extremes extremes{0, kLowest};
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kEach; ++s) {
      const unsigned i = s * kThreads + threadIdx.x;
      x[s] = x[s] * (kCut ? norm_of(parts.part_of(i)) : norm);
      if (i < parts.size) {
        const auto bits = static_cast<std::int32_t>(exact::bits_of(x[s]));
        const std::int32_t magnitude = bits & 0x7FFFFFFF;
        if (magnitude > extremes.magnitude) extremes.magnitude = magnitude;
        if (bits > extremes.highest) extremes.highest = bits;
      }
      const bool is_last =
          task.block < 2 * kThreads || ((s + 1) * kThreads & (task.block - 1)) == 0;
      if (!is_last) continue;
      if (task.block >= 32) {
        extremes = {__reduce_max_sync(kAllLanes, extremes.magnitude),
                    __reduce_max_sync(kAllLanes, extremes.highest)};
        if (threadIdx.x % 32 == 0) {
          atomicMax(&shared.extremes[i >> task.shift].magnitude, extremes.magnitude);
          atomicMax(&shared.extremes[i >> task.shift].highest, extremes.highest);
        }
      } else {
        atomicMax(&shared.extremes[i >> task.shift].magnitude, extremes.magnitude);
        atomicMax(&shared.extremes[i >> task.shift].highest, extremes.highest);
      }
      extremes = {0, kLowest};
    }
    __syncthreads();
    for (unsigned g = threadIdx.x; g < groups; g += kThreads) {
      if (g << task.shift >= parts.size) continue;
      const float scale = exact::choose_scale(task.codec, shared.extremes[g]);
      const std::uint64_t group = (tile >> task.shift) + g;
      const std::uint32_t stored = exact::stored_scale(task.codec.scale, scale);
      if (task.codec.scale == ScaleType::f32)
        reinterpret_cast<std::uint32_t*>(task.scales)[group] = stored;
      else if (task.codec.scale == ScaleType::f16)
        reinterpret_cast<std::uint16_t*>(task.scales)[group] = static_cast<std::uint16_t>(stored);
      else
        reinterpret_cast<std::uint8_t*>(task.scales)[group] = static_cast<std::uint8_t>(stored);
      shared.levels[g] = exact::encode_level(task.codec, scale);
    }
    // Back to the layout of neighbours, in which codes are made.
    for (unsigned s = 0; s < kEach; ++s) shared.values[s * kThreads + threadIdx.x] = x[s];
    __syncthreads();
    std::uint32_t codes[kSteps];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const unsigned i = (s * kThreads + threadIdx.x) * 4;
      exact::FourWords words = {{0, 0, 0, 0}};
      if (task.rule.is_stochastic) words = exact::philox_words(task.noise, (tile + i) / 4);
      codes[s] = 0;
      if (kCut && i >= parts.size) continue;
      const Level level = shared.levels[i >> task.shift];  // of all four
      const Four four = load_four(Dtype::f32, shared.values, i, 4, true);
      for (unsigned j = 0; j < 4; ++j) {
        std::uint32_t code = 0;
        if (!kCut || i + j < parts.size)
          code = exact::code_of(
              exact::round_to_code(task.rule, four.at[j], level, exact::noise_of(words.at[j])));
        codes[s] = codes[s] << task.codec.bits | code;
      }
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; s += 2) {
      const unsigned a = (s * kThreads + threadIdx.x / 32 * 32) * 4, b = a + kThreads * 4;
      task.codes.store_pair(tile + a, tile + b, threadIdx.x % 32,
                            a < parts.size ? parts.size - a : 0,
                            b < parts.size ? parts.size - b : 0, codes[s], codes[s + 1]);
    }
    __syncthreads();
  }
}

// Of a tile, blocks are whole or one is not: what that takes is compiled apart.
__global__ void __launch_bounds__(kThreads) rotate(RotateTask task) {
  for (std::uint64_t tile = std::uint64_t{blockIdx.x} * kTile; tile < task.elements;
       tile += std::uint64_t{gridDim.x} * kTile) {
    const Parts parts = parts_in(task, tile);
    if (parts.size == parts.whole)
      rotate_tile<false>(task, tile, parts);
    else
      rotate_tile<true>(task, tile, parts);
  }
}

__device__ __forceinline__ float scale_at(const RotateTask& task, std::uint64_t group) {
  if (task.codec.scale == ScaleType::f32)
    return exact::loaded_scale(task.codec.scale,
                               reinterpret_cast<const std::uint32_t*>(task.scales)[group]);
  if (task.codec.scale == ScaleType::f16)
    return exact::loaded_scale(task.codec.scale,
                               reinterpret_cast<const std::uint16_t*>(task.scales)[group]);
  return exact::loaded_scale(task.codec.scale,
                             reinterpret_cast<const std::uint8_t*>(task.scales)[group]);
}

template <bool kCut>
__device__ __forceinline__ void unrotate_tile(const RotateTask& task, std::uint64_t tile,
                                              const Parts& parts) {
  auto& shared = shared_memory<RotateShared>();
  const float norm = norm_of(task.block);
  {
    const unsigned groups = kTile >> task.shift, lane = threadIdx.x % 32;
    for (unsigned g = threadIdx.x; g < groups; g += kThreads)
      if (g << task.shift < parts.size)
        shared.levels[g] =
            exact::decode_level(task.codec, scale_at(task, (tile >> task.shift) + g));
    __syncthreads();
    Four fours[kSteps];
    const std::uint32_t mask = (1u << task.codec.bits) - 1;
    // Eights of codes of two steps at a time, as CodeStream::load_pair has them.
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; s += 2) {
      const bool is_odd = lane % 2 != 0;
      const unsigned i =
          (s * kThreads + threadIdx.x / 32 * 32) * 4 + (is_odd ? kThreads * 4 : 0) + lane / 2 * 8;
      const std::uint64_t word =
          i < parts.size ? task.codes.load_eight((tile + i) / 8, parts.size - i) : 0;
      const std::uint32_t all = task.codec.bits == 8 ? ~0u : (1u << 4 * task.codec.bits) - 1;
      const auto high = static_cast<std::uint32_t>(word >> 4 * task.codec.bits) & all;
      const auto low = static_cast<std::uint32_t>(word) & all;
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_odd ? high : low, 1);
      const std::uint32_t codes[2] = {is_odd ? other : high, is_odd ? low : other};
      for (unsigned k = 0; k < 2; ++k) {
        const unsigned first = ((s + k) * kThreads + threadIdx.x) * 4;
        const bool is_there = !kCut || first < parts.size;
        const Level level = is_there ? shared.levels[first >> task.shift] : Level{};
        for (unsigned j = 0; j < 4; ++j)
          fours[s + k].at[j] =
              !kCut || first + j < parts.size
                  ? exact::decoded_code(codes[k] >> (3 - j) * task.codec.bits & mask, level)
                  : 0.0f;
      }
    }
    stages_near<kCut>(fours, parts);
    for (unsigned s = 0; s < kSteps; ++s)
      store_floats(shared.values, (s * kThreads + threadIdx.x) * 4, fours[s], 4, true);
    __syncthreads();
    float x[kEach];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kEach; ++s) x[s] = shared.values[s * kThreads + threadIdx.x];
    stages_far<kCut>(x, parts);
    for (unsigned s = 0; s < kEach; ++s)
      shared.values[s * kThreads + threadIdx.x] =
          x[s] * (kCut ? norm_of(parts.part_of(s * kThreads + threadIdx.x)) : norm);
    __syncthreads();
    const std::uint32_t drawn = drawn_signs(task, tile);
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const unsigned i = (s * kThreads + threadIdx.x) * 4;
      const std::uint32_t bits = signs_of(drawn, s);
      Four four;
      for (int j = 0; j < 4; ++j)
        four.at[j] = exact::canonical(with_sign(shared.values[i + j], bits >> j & 1));
      if (i < parts.size) deliver_four(task.sink, tile + i, four, parts.size - i);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) unrotate(RotateTask task) {
  for (std::uint64_t tile = std::uint64_t{blockIdx.x} * kTile; tile < task.elements;
       tile += std::uint64_t{gridDim.x} * kTile) {
    const Parts parts = parts_in(task, tile);
    if (parts.size == parts.whole)
      unrotate_tile<false>(task, tile, parts);
    else
      unrotate_tile<true>(task, tile, parts);
  }
}

RotateTask task_of(const Quantise& codec, const QuantiseLayout& layout, std::uint64_t seed,
                   std::byte* payload) {
  constexpr std::uint64_t kRotationStream = 1, kRoundingStream = 2;
  return {codec,
          exact::rule_of(codec),
          derive(key_of(seed), kRotationStream),
          derive(key_of(seed), kRoundingStream),
          layout.elements,
          static_cast<unsigned>(layout.run),
          static_cast<unsigned>(std::countr_zero(layout.run)),
          {},
          false,
          payload + layout.scales_at,
          CodeStream(codec.bits, payload + layout.codes_at),
          {}};
}

}  // namespace

void device_rotate(const Quantise& codec, const QuantiseLayout& layout, const DeviceSource& source,
                   std::uint64_t seed, std::byte* payload, Stream stream) {
  RotateTask task = task_of(codec, layout, seed, payload);
  task.source = source;
  task.is_aligned = is_aligned(source);
  device_put(seed, payload, stream);
  launch_over<RotateShared>(rotate, parts_of(layout.elements, kTile), kThreads, stream, task);
}

void device_unrotate(const Quantise& codec, const QuantiseLayout& layout, std::uint64_t seed,
                     const std::byte* payload, const DeviceSink& sink, Stream stream) {
  RotateTask task = task_of(codec, layout, seed, const_cast<std::byte*>(payload));
  task.sink = view_of(sink);
  launch_over<RotateShared>(unrotate, parts_of(layout.elements, kTile), kThreads, stream, task);
}

}  // namespace laconic::kernel
