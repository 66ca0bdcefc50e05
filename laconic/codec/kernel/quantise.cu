// Quantise, not rotated. A group stays in registers between finding its scale and making its codes,
// so memory is read once: by a part of a warp, some warps or a block of threads, 16 elements each.
// Lanes hold fours of neighbouring elements, so loads and stores of numbers are of 16 bytes side by
// side; codes are exchanged between neighbouring lanes, because only eight of them fill whole bytes
// whatever the bits. Channels take one kernel that waits for itself; groups of other sizes and
// unaligned tensors take three simpler passes.
#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/code_stream.cuh"

#ifdef __CUDACC__
#define LACONIC_UNROLL_STEPS _Pragma("unroll")
#else
#define LACONIC_UNROLL_STEPS
#endif

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / 32;
constexpr std::int32_t kLowest = -2147483647 - 1;

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

__device__ __forceinline__ void tell(const QuantiseTask& task, bool is_unsound) {
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
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

// The four of a group at `at`, of which min(left, 4) exist; the others are zero. kWhole: all do.
template <Dtype kDtype, bool kWhole>
__device__ __forceinline__ void load_team_four(const void* x, std::uint64_t i, unsigned left,
                                               Four& four) {
  if (kWhole || left >= 4) return load_wide<kDtype>(x, i, four.at);
  four = {{0, 0, 0, 0}};
  if (left == 0) return;
  for (unsigned j = 0; j < 3; ++j)
    if (j < left) four.at[j] = load_one(kDtype, x, i + j);
}

constexpr int kTeamSteps = 4;

struct TeamShared {
  std::int32_t highest[kWarps];
  std::uint32_t bits[kWarps];
};

// The largest as signed and as unsigned numbers: the first is the largest positive, the second the
// negative that is largest by magnitude, if there are any.
__device__ __forceinline__ Extremes extremes_of(std::int32_t highest, std::uint32_t bits) {
  std::int32_t magnitude = highest > 0 ? highest : 0;
  const auto negative = static_cast<std::int32_t>(bits & 0x7FFFFFFF);
  if ((bits & exact::kSignBit) != 0 && negative > magnitude) magnitude = negative;
  return {magnitude, highest};
}

// The larger magnitude; NaN is larger than infinity, and any NaN.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
#ifdef __CUDA_ARCH__
  float larger;
  asm("max.ftz.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
#else
  const std::uint32_t x = exact::bits_of(a) & ~exact::kSignBit;
  const std::uint32_t y = exact::bits_of(b) & ~exact::kSignBit;
  return exact::float_of(x > y ? x : y);
#endif
}
__device__ __forceinline__ float largest_magnitude(const Four& four) {
  return larger_magnitude(larger_magnitude(four.at[0], four.at[1]),
                          larger_magnitude(four.at[2], four.at[3]));
}

// The ways to a code that have kernels of their own. `random` is that of the grid `ends` where 4
// bits are rounded at random: with no memory to wait for, arithmetic decides how long that takes,
// and what is known need not be asked for every four.
enum class Way { tread, ends, random };

// There codes are made as sixteenths, of which one operation cuts off those below 0. Where this is
// added floats are the sixteenths.
constexpr float kToSixteenths = exact::kToInteger / 16;

// Whether codes and scales are of the usual kind.
bool is_usual(const QuantiseTask& task) {
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

template <Dtype kDtype, unsigned kLanes, bool kWhole, int kSteps>
__device__ __forceinline__ void load_team(const void* x, std::uint64_t first, unsigned size,
                                          Four (&fours)[kSteps]) {
  const unsigned lane = threadIdx.x % kLanes;
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kSteps; ++s) {
    const unsigned at = (kLanes * s + lane) * 4;
    load_team_four<kDtype, kWhole>(x, first + at, at < size ? size - at : 0, fours[s]);
  }
}

template <Memory kMemory, unsigned kLanes, Way kWay, bool kWhole, int kSteps>
__device__ __forceinline__ void quantise_team(const QuantiseTask& task, std::uint64_t group,
                                              unsigned size, bool& is_unsound) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t first = group * task.run;
  Four sent[kSteps], before[kSteps];
  if constexpr (kMemory != Memory::none)
    load_team<Dtype::f32, kLanes, kWhole>(task.source.before, first, size, before);
  if (task.source.dtype == Dtype::f32) {
    load_team<Dtype::f32, kLanes, kWhole>(task.source.x, first, size, sent);
  } else if (task.source.dtype == Dtype::bf16) {
    load_team<Dtype::bf16, kLanes, kWhole>(task.source.x, first, size, sent);
  } else {
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < kSteps; ++s) {
      const unsigned at = (kLanes * s + lane) * 4;
      sent[s] =
          load_four(task.source.dtype, task.source.x, first + at, at < size ? size - at : 0, true);
    }
  }
  if constexpr (kMemory != Memory::none) {
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < kSteps; ++s)
      for (int j = 0; j < 4; ++j) sent[s].at[j] = combined(kMemory, sent[s].at[j], before[s].at[j]);
  }
  // Elements that do not exist are zeros, which no extreme minds.
  std::int32_t highest = kLowest;
  std::uint32_t largest = 0;
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kSteps; ++s) {
    // Only the grid `tread` asks which sign the largest has.
    if constexpr (kWay == Way::random) {
      largest =
          exact::bits_of(larger_magnitude(exact::float_of(largest), largest_magnitude(sent[s])));
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t bits = exact::bits_of(sent[s].at[j]);
      highest =
          static_cast<std::int32_t>(bits) > highest ? static_cast<std::int32_t>(bits) : highest;
      largest = bits > largest ? bits : largest;
    }
  }
  constexpr unsigned kShuffled = kLanes < 32 ? kLanes : 32;
  LACONIC_UNROLL_STEPS
  for (unsigned by = 1; by < kShuffled; by *= 2) {
    if constexpr (kWay != Way::random) {
      const std::int32_t other_highest = __shfl_xor_sync(kAllLanes, highest, by);
      highest = other_highest > highest ? other_highest : highest;
    }
    const std::uint32_t other_largest = __shfl_xor_sync(kAllLanes, largest, by);
    largest = other_largest > largest ? other_largest : largest;
  }
  if constexpr (kLanes > 32) {
    auto& shared = shared_memory<TeamShared>();
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      shared.highest[threadIdx.x / 32] = highest;
      shared.bits[threadIdx.x / 32] = largest;
    }
    __syncthreads();
    const unsigned team = threadIdx.x / kLanes * (kLanes / 32);
    for (unsigned w = team; w < team + kLanes / 32; ++w) {
      highest = shared.highest[w] > highest ? shared.highest[w] : highest;
      largest = shared.bits[w] > largest ? shared.bits[w] : largest;
    }
  }
  const Extremes extremes = kWay == Way::random
                                ? Extremes{static_cast<std::int32_t>(largest), kLowest}
                                : extremes_of(highest, largest);
  const float scale = exact::choose_scale(task.codec, extremes);
  const Ladder ladder = ladder_of<kWay>(task, scale);
  if (lane == 0 && size > 0) store_scale(task.codec, task.scales, group, scale);
  std::uint32_t codes[kSteps];
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kSteps; ++s) {
    const unsigned at = (kLanes * s + lane) * 4;
    const unsigned left = kWhole ? 4 : at < size ? size - at : 0;
    codes[s] = 0;
    if (left == 0) continue;
    exact::FourWords words = {{0, 0, 0, 0}};
    if constexpr (kWay == Way::random)
      words = exact::philox_words(task.noise, static_cast<std::uint32_t>(first / 4) + at / 4);
    else if (kWay != Way::tread && task.rule.is_stochastic)
      words = exact::philox_words(task.noise, (first + at) / 4);
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j) {
      const float rounded = round_on<kWay>(ladder, task.rule, sent[s].at[j], words.at[j]);
      codes[s] = codes[s] * task.radix + exact::bits_of(rounded);
      if constexpr (kMemory != Memory::none) {
        float q = rounded - task.rule.to_integer;
        if constexpr (kWay != Way::tread) q = q - ladder.middle;
        const float received = q * ladder.step;
        sent[s].at[j] =
            kMemory == Memory::feedback ? sent[s].at[j] - received : before[s].at[j] + received;
      }
    }
    codes[s] -= task.surplus;
    if (left < 4) codes[s] &= ~0u << (4 - left) * static_cast<unsigned>(task.codec.bits);
    if constexpr (kMemory != Memory::none) {
      if (has_unsound(sent[s].at)) [[unlikely]] {
        is_unsound = true;
        for (int j = 0; j < 4; ++j) sent[s].at[j] = exact::canonical(sent[s].at[j]);
      }
      store_floats(task.source.after, first + at, sent[s], left, true);
    }
  }
  CodeStream to = task.codes;
  std::uint64_t origin = first;
  // From its group on a code's place is known but for the lane, and not computed for each.
  if constexpr (kWay == Way::random) to.at += first / 2, origin = 0;
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kSteps; s += 2) {
    const unsigned a = kLanes * s * 4, b = a + kLanes * 4;
    to.store_pair_of<kWhole, kWhole && kMemory == Memory::none && kLanes % 8 == 0>(
        origin + a, origin + b, lane,
        kWhole     ? 4 * kLanes
        : a < size ? size - a
                   : 0,
        kWhole     ? 4 * kLanes
        : b < size ? size - b
                   : 0,
        codes[s], codes[s + 1]);
  }
}

// Threads of a block. Where blocks do not go round small ones make room for others sooner.
template <Way kWay, unsigned kLanes>
inline constexpr unsigned kTeamThreads = (kWay == Way::random && kLanes <= 32) ? 128 : kThreads;

// Blocks of threads that a processor should hold: the numbers of a thread lie in registers.
template <Memory kMemory, Way kWay, unsigned kLanes, int kSteps>
inline constexpr int kResident = (kMemory != Memory::none ? 3
                                  : kSteps > kTeamSteps   ? 4
                                                          : 5) *
                                 static_cast<int>(kThreads / kTeamThreads<kWay, kLanes>);

// Groups of 64 elements or more, up to kSteps fours for each of kLanes threads. All threads of a
// block, or of a warp, go round equally often, because they exchange.
template <Memory kMemory, unsigned kLanes, Way kWay, int kSteps = kTeamSteps>
__global__ void __launch_bounds__(kTeamThreads<kWay, kLanes>,
                                  kResident<kMemory, kWay, kLanes, kSteps>)
    quantise_teams(QuantiseTask given) {
  const QuantiseTask task = known<kWay>(given);
  constexpr unsigned kMost = kLanes * kSteps * 4;
  // Threads that stay together.
  constexpr unsigned kTogether = kLanes < 32 ? 32 : kTeamThreads<kWay, kLanes>;
  constexpr unsigned kTeams = kTogether / kLanes;
  const std::uint64_t team = threadIdx.x % kTogether / kLanes;
  const std::uint64_t bands = thread_total() / kTogether;
  bool is_unsound = false;
  for (std::uint64_t band = thread_number() / kTogether; band * kTeams < task.groups;
       band += bands) {
    const std::uint64_t group = band * kTeams + team;
    const bool is_whole = task.run == kMost && (band + 1) * kTeams * task.run <= task.elements;
    if (is_whole) {
      quantise_team<kMemory, kLanes, kWay, true, kSteps>(task, group, kMost, is_unsound);
    } else {
      unsigned size = 0;
      if (group < task.groups) {
        const std::uint64_t left = task.elements - group * task.run;
        size = static_cast<unsigned>(left < task.run ? left : task.run);
      }
      quantise_team<kMemory, kLanes, kWay, false, kSteps>(task, group, size, is_unsound);
    }
    if constexpr (kWay == Way::random) break;  // its grid has threads for all
  }
  tell(task, is_unsound);
}

// --- bf16 without a memory, on the grid `tread` and of the usual kind. Numbers have half the
// bytes, so a thread takes twice as many, that as much is under way and a group's scale is computed
// by fewer; and whole eights, whose codes need no neighbour.

constexpr int kEightSteps = 4;
constexpr unsigned kEightSurplus = 0x11111111u;  // weights of eight codes of 4 bits

// kWhole: all eight exist, and of a group all elements.
template <bool kWhole>
__device__ __forceinline__ void load_eight(const void* x, std::uint64_t i, unsigned left,
                                           float (&to)[8]) {
  if (kWhole || left >= 8) return load_wide<Dtype::bf16>(x, i, to);
  for (unsigned j = 0; j < 8; ++j) to[j] = j < left ? load_one(Dtype::bf16, x, i + j) : 0.0f;
}

// Of a warp's lanes kLanes have a group.
template <unsigned kLanes, bool kWhole>
__device__ __forceinline__ void quantise_eights_of(const QuantiseTask& task, std::uint64_t group,
                                                   unsigned size) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t first = group * task.run;
  float x[kEightSteps][8];
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kEightSteps; ++s) {
    const unsigned at = (kLanes * s + lane) * 8;
    load_eight<kWhole>(task.source.x, first + at, at < size ? size - at : 0, x[s]);
  }
  std::int32_t highest = kLowest;
  std::uint32_t largest = 0;
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kEightSteps; ++s)
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t bits = exact::bits_of(x[s][j]);
      const auto number = static_cast<std::int32_t>(bits);
      highest = number > highest ? number : highest;
      largest = bits > largest ? bits : largest;
    }
  LACONIC_UNROLL_STEPS
  for (unsigned by = 1; by < kLanes; by *= 2) {
    const std::int32_t other_highest = __shfl_xor_sync(kAllLanes, highest, by);
    const std::uint32_t other_largest = __shfl_xor_sync(kAllLanes, largest, by);
    highest = other_highest > highest ? other_highest : highest;
    largest = other_largest > largest ? other_largest : largest;
  }
  const float scale = exact::choose_scale(task.codec, extremes_of(highest, largest));
  const Ladder ladder = ladder_of<Way::tread>(task, scale);
  if (lane == 0 && size > 0) store_scale(task.codec, task.scales, group, scale);
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kEightSteps; ++s) {
    const unsigned at = (kLanes * s + lane) * 8;
    if (!kWhole && at >= size) continue;
    std::uint32_t codes = 0;
    LACONIC_UNROLL_STEPS
    for (int j = 0; j < 8; ++j)
      codes =
          codes * task.radix + exact::bits_of(round_on<Way::tread>(ladder, task.rule, x[s][j], 0));
    codes -= exact::bits_of(exact::kToInteger) * kEightSurplus;
    const unsigned left = kWhole ? 8 : size - at;
    if (left < 8) codes &= ~0u << (8 - left) * 4;
    task.codes.store_eight((first + at) / 8, codes, left);
  }
}

template <unsigned kLanes>
__global__ void __launch_bounds__(kThreads, 4) quantise_eights(QuantiseTask given) {
  QuantiseTask task = usual(given);
  task.codec.grid = Grid::tread;
  constexpr unsigned kTeams = 32 / kLanes, kMost = kLanes * kEightSteps * 8;
  const std::uint64_t team = threadIdx.x % 32 / kLanes, bands = thread_total() / 32;
  for (std::uint64_t band = thread_number() / 32; band * kTeams < task.groups; band += bands) {
    const std::uint64_t group = band * kTeams + team;
    if (task.run == kMost && (band + 1) * kTeams * task.run <= task.elements) {
      quantise_eights_of<kLanes, true>(task, group, kMost);
      continue;
    }
    unsigned size = 0;
    if (group < task.groups) {
      const std::uint64_t left = task.elements - group * task.run;
      size = static_cast<unsigned>(left < task.run ? left : task.run);
    }
    quantise_eights_of<kLanes, false>(task, group, size);
  }
}

struct BlockExtremes {
  Extremes of_warp[kWarps];
};

__device__ __forceinline__ Extremes of_warp(Extremes extremes) {
  return {__reduce_max_sync(kAllLanes, extremes.magnitude),
          __reduce_max_sync(kAllLanes, extremes.highest)};
}

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

// --- any groups: extremes by atomic maxima, which do not mind the order; levels; codes

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

__device__ __forceinline__ void raise_shared(Extremes& at, const Extremes& by) {
  if (by.magnitude > 0) atomicMax(&at.magnitude, by.magnitude);
  if (by.highest > kLowest) atomicMax(&at.highest, by.highest);
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

// --- channels where all is aligned and rows are whole eights: one kernel that reads everything
// twice, because a scale is known only when all of its column was seen. A block of threads has a
// strip of columns, a thread four of them, and all blocks move down the rows side by side. Then
// they wait for each other and make codes on the way back, so that what was read last, and is still
// in the cache, comes first.

constexpr unsigned kStripThreads = 512;
constexpr unsigned kStripFours = 64;  // the widest, so that few threads add to one extreme at once

struct ChannelTask {
  QuantiseTask task;
  Extremes* extremes;
  unsigned rows;
  unsigned fours;          // of a row
  unsigned strips, width;  // a strip's in fours, an even number
};

struct StripShared {
  Extremes extremes[4 * kStripFours];
  Level levels[4 * kStripFours];
};

// What a thread has of a strip: elements `first`, `first` + step, ... and three behind each.
struct StripPart {
  unsigned begin, columns;  // of the strip
  unsigned within;          // the thread's first column, from `begin` on
  std::uint64_t first, step;
  unsigned rows, most;  // how many are this thread's, and any thread's
};

// Of `per` blocks for each strip this is number blockIdx.x % per.
__device__ __forceinline__ StripPart part_of(const ChannelTask& channel, unsigned strip,
                                             unsigned per) {
  const unsigned high = kStripThreads / channel.width, row = threadIdx.x / channel.width;
  const unsigned four = strip * channel.width + threadIdx.x % channel.width;
  const unsigned first = blockIdx.x % per * high + row, step = per * high;
  const bool is_there =
      row < high && strip < channel.strips && four < channel.fours && first < channel.rows;
  StripPart part;
  part.begin = strip * channel.width * 4;
  const auto run = channel.fours * 4, past = part.begin + channel.width * 4;
  part.columns = part.begin < run ? (past < run ? past : run) - part.begin : 0;
  part.within = threadIdx.x % channel.width * 4;
  part.first = std::uint64_t{first} * run + four * 4;
  part.step = std::uint64_t{step} * run;
  part.rows = is_there ? (channel.rows - first - 1) / step + 1 : 0;
  part.most = (channel.rows - 1) / step + 1;
  return part;
}

// The extremes of all rows of this block, in its shared memory.
template <Memory kMemory, Dtype kDtype>
__device__ __forceinline__ void find_extremes(const QuantiseTask& task, const StripPart& part,
                                              StripShared& shared) {
  constexpr unsigned kAtOnce = kMemory == Memory::none ? 8 : 4;
  std::int32_t highest[4] = {kLowest, kLowest, kLowest, kLowest};
  std::uint32_t largest[4] = {0, 0, 0, 0};
  for (unsigned r = 0; r < part.rows; r += kAtOnce) {
    Four x[kAtOnce], before[kAtOnce];
    LACONIC_UNROLL_STEPS
    for (unsigned k = 0; k < kAtOnce; ++k) {
      // The last row again rather than one that does not exist: extremes do not mind.
      const unsigned row = r + k < part.rows ? r + k : part.rows - 1;
      const std::uint64_t i = part.first + row * part.step;
      load_wide<kDtype>(task.source.x, i, x[k].at);
      if constexpr (kMemory != Memory::none)
        load_wide<Dtype::f32>(task.source.before, i, before[k].at);
    }
    LACONIC_UNROLL_STEPS
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (int j = 0; j < 4; ++j) {
        const float sent =
            kMemory == Memory::none ? x[k].at[j] : combined(kMemory, x[k].at[j], before[k].at[j]);
        const std::uint32_t bits = exact::bits_of(sent);
        const auto number = static_cast<std::int32_t>(bits);
        highest[j] = number > highest[j] ? number : highest[j];
        largest[j] = bits > largest[j] ? bits : largest[j];
      }
  }
  __syncthreads();
  if (threadIdx.x < part.columns) shared.extremes[threadIdx.x] = {0, kLowest};
  __syncthreads();
  if (part.rows > 0)
    for (int j = 0; j < 4; ++j)
      raise_shared(shared.extremes[part.within + j], extremes_of(highest[j], largest[j]));
  __syncthreads();
}

// Four numbers of a row become codes and, in place, what is remembered.
template <Memory kMemory, bool kTread>
__device__ __forceinline__ std::uint32_t encode_columns(const QuantiseTask& task,
                                                        const Level (&levels)[4], std::uint64_t i,
                                                        Four& sent, const Four& before) {
  exact::FourWords words = {{0, 0, 0, 0}};
  if (!kTread && task.rule.is_stochastic) words = exact::philox_words(task.noise, i / 4);
  std::uint32_t codes = 0;
  LACONIC_UNROLL_STEPS
  for (int j = 0; j < 4; ++j) {
    const Level& level = levels[j];
    float& v = sent.at[j];
    if constexpr (kMemory != Memory::none) v = combined(kMemory, v, before.at[j]);
    const float rounded =
        kTread ? exact::round_to_tread(task.rule, v, level)
               : exact::round_to_code(task.rule, v, level, exact::noise_of(words.at[j]));
    codes = codes * task.radix + exact::bits_of(rounded);
    if constexpr (kMemory != Memory::none) {
      float q = rounded - task.rule.to_integer;
      if (!kTread && task.rule.grid == Grid::ends) q = q - level.middle;
      v = kMemory == Memory::feedback ? v - q * level.step : before.at[j] + q * level.step;
    }
  }
  return codes - task.surplus;
}

// The codes of all rows of this block, from the last on. All threads go round equally often,
// because neighbours exchange.
template <Memory kMemory, Dtype kDtype, bool kTread>
__device__ __forceinline__ void make_codes(const QuantiseTask& task, const StripPart& part,
                                           const StripShared& shared, bool& is_unsound) {
  constexpr unsigned kAtOnce = kMemory == Memory::none ? 4 : 2;
  Level levels[4] = {};
  if (part.rows > 0)
    for (int j = 0; j < 4; ++j) levels[j] = shared.levels[part.within + j];
  for (unsigned r = (part.most - 1) / kAtOnce * kAtOnce + kAtOnce; r > 0;) {
    r -= kAtOnce;
    const std::uint64_t at = part.first + r * part.step;
    Four x[kAtOnce], before[kAtOnce];
    LACONIC_UNROLL_STEPS
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (r + k >= part.rows) continue;
      load_wide<kDtype>(task.source.x, at + k * part.step, x[k].at);
      if constexpr (kMemory != Memory::none)
        load_wide<Dtype::f32>(task.source.before, at + k * part.step, before[k].at);
    }
    LACONIC_UNROLL_STEPS
    for (unsigned k = 0; k < kAtOnce; k += 2) {
      std::uint32_t codes[2] = {0, 0};
      LACONIC_UNROLL_STEPS
      for (unsigned m = 0; m < 2; ++m) {
        if (r + k + m >= part.rows) continue;
        Four& four = x[k + m];
        const std::uint64_t i = at + (k + m) * part.step;
        codes[m] = encode_columns<kMemory, kTread>(task, levels, i, four, before[k + m]);
        if constexpr (kMemory != Memory::none) {
          if (has_unsound(four.at)) [[unlikely]] {
            is_unsound = true;
            settle_nans(four.at);
          }
          store_wide<Dtype::f32>(task.source.after, i, four.at);
        }
      }
      // Where the eight of this thread and its neighbour begins, in both rows.
      const unsigned lane = threadIdx.x % 2;
      const std::uint64_t a = at + k * part.step - 4 * lane;
      task.codes.store_pair_of<false>(a, a + part.step, lane, r + k < part.rows ? 8 : 0,
                                      r + k + 1 < part.rows ? 8 : 0, codes[0], codes[1]);
    }
  }
}

template <Memory kMemory, Dtype kDtype, bool kTread>
__global__ void __launch_bounds__(kStripThreads, 2) quantise_strips(ChannelTask channel) {
  auto& shared = shared_memory<StripShared>();
  const QuantiseTask& task = channel.task;
  const unsigned per = gridDim.x < channel.strips ? 1 : gridDim.x / channel.strips;
  const unsigned together = gridDim.x / per;
  const unsigned rounds = (channel.strips + together - 1) / together;
  for (std::uint64_t g = thread_number(); g < task.groups; g += thread_total())
    channel.extremes[g] = {0, kLowest};
  for (unsigned round = 0; round < rounds; ++round) {
    const StripPart part = part_of(channel, round * together + blockIdx.x / per, per);
    find_extremes<kMemory, kDtype>(task, part, shared);
    if (round == 0) grid_sync();  // all were cleared
    if (threadIdx.x < part.columns)
      raise_shared(channel.extremes[part.begin + threadIdx.x], shared.extremes[threadIdx.x]);
  }
  grid_sync();
  bool is_unsound = false;
  for (unsigned round = rounds; round-- > 0;) {
    const StripPart part = part_of(channel, round * together + blockIdx.x / per, per);
    __syncthreads();
    if (threadIdx.x < part.columns) {
      const unsigned g = part.begin + threadIdx.x;
      const float scale = exact::choose_scale(task.codec, channel.extremes[g]);
      if (blockIdx.x % per == 0) store_scale(task.codec, task.scales, g, scale);
      shared.levels[threadIdx.x] = exact::encode_level(task.codec, scale);
    }
    __syncthreads();
    make_codes<kMemory, kDtype, kTread>(task, part, shared, is_unsound);
  }
  tell(task, is_unsound);
}

// --- and back

struct DequantiseTask {
  Quantise codec;
  std::uint64_t elements, run;
  int run_shift;  // run is 2 to this power; -1: to none
  bool is_channel;
  const std::byte* scales;
  CodeStream codes;
  SinkView sink;
};

__device__ __forceinline__ Level level_of(const DequantiseTask& task, std::uint64_t group) {
  return exact::decode_level(task.codec, load_scale(task.codec, task.scales, group));
}

__device__ __forceinline__ std::uint64_t group_at(const DequantiseTask& task, std::uint64_t i) {
  if (task.run_shift >= 0) return i >> task.run_shift;
  // 32-bit division is much faster, and large tensors are rare.
  if ((i | task.run) >> 32 == 0)
    return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(task.run);
  return i / task.run;
}

// The last group that was wanted, with its level: neighbours are mostly in the same.
struct LastLevel {
  std::uint64_t group = ~std::uint64_t{0};
  Level level = {};
};

__device__ __forceinline__ Four decoded_four(const DequantiseTask& task, std::uint32_t codes,
                                             std::uint64_t i, std::uint64_t left, LastLevel& last) {
  Four four = {{0, 0, 0, 0}};
  const std::uint32_t mask = (1u << task.codec.bits) - 1;
  if (!task.is_channel && task.run % 4 == 0) {
    const std::uint64_t group = group_at(task, i);
    if (group != last.group) last = {group, level_of(task, group)};
    LACONIC_UNROLL_STEPS
    for (int j = 0; j < 4; ++j)
      four.at[j] = exact::decoded_code(codes >> (3 - j) * task.codec.bits & mask, last.level);
    return four;
  }
  for (int j = 0; j < 4; ++j)
    if (static_cast<std::uint64_t>(j) < left)
      four.at[j] = exact::decoded_code(
          codes >> (3 - j) * task.codec.bits & mask,
          level_of(task, task.is_channel ? (i + j) % task.run : group_at(task, i + j)));
  return four;
}

// A warp takes 512 elements, 256 at a time: even lanes read the codes of the first half, odd ones
// those of the second, and they exchange what belongs to the other's four.
template <Delivery kKind>
__global__ void __launch_bounds__(kThreads) dequantise(DequantiseTask task) {
  SinkView sink = task.sink;
  sink.sink.kind = kKind;
  const unsigned lane = threadIdx.x % 32;
  const std::uint64_t warps = thread_total() / 32;
  for (std::uint64_t first = thread_number() / 32 * 512; first < task.elements;
       first += warps * 512) {
    const std::uint64_t size = task.elements - first;
    std::uint32_t codes[2][2];
    task.codes.load_pair(first, lane, size, codes[0]);
    task.codes.load_pair(first + 256, lane, size < 256 ? 0 : size - 256, codes[1]);
    LastLevel last;
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < 4; ++s) {
      const unsigned at = (32u * s + lane) * 4;
      if (at >= size) continue;
      const std::uint64_t left = size - at;
      const Four four = decoded_four(task, codes[s / 2][s % 2], first + at, left, last);
      deliver_four(sink, first + at, four, left);
    }
  }
}

// --- and back where all is aligned and groups, or rows of channels, are whole units

// Elements of a warp at a time. Where only 16 bits of each are moved twice as many, since what a
// tile costs beside its elements would be most.
template <Delivery kKind, Dtype kDtype, bool kChannel>
inline constexpr unsigned kWideTile =
    kKind == Delivery::store&& kDtype == Dtype::bf16 && !kChannel ? 1024 : 512;

struct WideTask {
  DequantiseTask task;
  std::uint64_t tiles;  // whole ones
  Divider groups;       // of fours
  std::uint32_t run_fours;
  // Of all levels but those of the grid `ends`: 1 / middle, a power of two, and the base.
  float inverse, base;
};

// What decoded_code() needs of a level.
struct Rung {
  float step, base;
};

__device__ __forceinline__ Rung rung_of(const WideTask& wide, float scale) {
  if (wide.task.codec.grid == Grid::ends) {
    const Level level = exact::decode_level(wide.task.codec, scale);
    return {level.step, 4194304.0f + level.middle};
  }
  // Dead groups need no choice: zero stays zero and NaN stays NaN.
  return {scale * wide.inverse, wide.base};
}

// The scales of kScales groups from each of `groups` on, a multiple of kScales, as they are stored.
// Nothing is made of them, so all can be under way.
template <int kUnits, int kScales>
__device__ __forceinline__ void load_scales(const DequantiseTask& task,
                                            const std::uint32_t (&groups)[kUnits],
                                            std::uint32_t (&words)[kUnits][kScales]) {
  if (task.codec.scale == ScaleType::f32) {
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < kUnits; ++s) {
      const auto* from = reinterpret_cast<const std::uint32_t*>(task.scales) + groups[s];
      if constexpr (kScales == 1) words[s][0] = *from;
      LACONIC_UNROLL_STEPS
      for (int j = 0; j + 4 <= kScales; j += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(from + j);
        words[s][j] = four.x, words[s][j + 1] = four.y;
        words[s][j + 2] = four.z, words[s][j + 3] = four.w;
      }
    }
  } else if (task.codec.scale == ScaleType::f16) {
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < kUnits; ++s) {
      const auto* from = reinterpret_cast<const std::uint16_t*>(task.scales) + groups[s];
      if constexpr (kScales == 1) words[s][0] = *from;
      LACONIC_UNROLL_STEPS
      for (int j = 0; j + 4 <= kScales; j += 4) {
        const uint2 four = *reinterpret_cast<const uint2*>(from + j);
        words[s][j] = four.x & 0xFFFF, words[s][j + 1] = four.x >> 16;
        words[s][j + 2] = four.y & 0xFFFF, words[s][j + 3] = four.y >> 16;
      }
    }
  } else {
    LACONIC_UNROLL_STEPS
    for (int s = 0; s < kUnits; ++s)
      for (int j = 0; j < kScales; ++j)
        words[s][j] = reinterpret_cast<const std::uint8_t*>(task.scales)[groups[s] + j];
  }
}

__device__ __forceinline__ float widened_scale(ScaleType type, std::uint32_t word) {
  if (type != ScaleType::f16) return exact::loaded_scale(type, word);
  float scale, none;
  unpack_two<Dtype::f16>(word, scale, none);
  return exact::is_finite(scale) ? scale : exact::float_of(exact::kNan);  // no infinity
}

// Where the codes of a four are: from bit `from` of a tile on, in one word, or in two where kBits
// is 0, for any bits.
struct Window {
  std::uint32_t first, second;
};

template <int kBits>
__device__ __forceinline__ Window load_window(const std::byte* tile, unsigned from,
                                              unsigned width) {
  const auto* word = reinterpret_cast<const std::uint32_t*>(tile) + from / 32;
  if constexpr (kBits != 0) return {*word, 0};
  return {word[0], from % 32 + width > 32 ? word[1] : 0};
}

// Four codes in the low `width` bits, the first in the highest of them.
template <int kBits>
__device__ __forceinline__ std::uint32_t codes_of(const Window& window, unsigned from,
                                                  unsigned width) {
  const std::uint32_t first = __byte_perm(window.first, 0, 0x0123);
  if constexpr (kBits != 0) return first << from % 32 >> (32 - width);
  return __funnelshift_l(__byte_perm(window.second, 0, 0x0123), first, from % 32) >> (32 - width);
}

// Everything that a lane needs for a tile is asked for before anything is used. kBits: 0 for
// any.
template <Delivery kKind, Dtype kDtype, bool kChannel, int kBits>
__device__ __forceinline__ void dequantise_tile(const WideTask& wide, std::uint64_t tile,
                                                unsigned lane) {
  constexpr int kUnit = kKind == Delivery::difference ? 4 : kWideCount<kDtype>;
  constexpr unsigned kTile = kWideTile<kKind, kDtype, kChannel>;
  constexpr int kUnits = kTile / 32 / kUnit, kFours = kUnit / 4;
  constexpr int kScales = kChannel ? kUnit : 1;
  const DequantiseTask& task = wide.task;
  const std::uint64_t first = tile * kTile;
  float old[kUnits][kUnit];
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kUnits; ++s)
    prepare_wide<kKind, kDtype>(task.sink, first + (32u * s + lane) * kUnit, old[s]);
  const auto bits = static_cast<unsigned>(kBits == 0 ? task.codec.bits : kBits);
  const std::byte* at = task.codes.at + tile * (kTile / 8) * bits;
  Window windows[kUnits][kFours];
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kUnits; ++s)
    for (int f = 0; f < kFours; ++f)
      windows[s][f] = load_window<kBits>(at, ((32u * s + lane) * kFours + f) * 4 * bits, 4 * bits);
  std::uint32_t groups[kUnits], words[kUnits][kScales];
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kUnits; ++s) {
    const auto four = static_cast<std::uint32_t>(tile * (kTile / 4)) + (32u * s + lane) * kFours;
    const std::uint32_t row = wide.groups.quotient(four);
    groups[s] = kChannel ? (four - row * wide.run_fours) * 4 : row;
  }
  load_scales(task, groups, words);
  const std::uint32_t mask = ((1u << bits) - 1) << 1;
  LACONIC_UNROLL_STEPS
  for (int s = 0; s < kUnits; ++s) {
    Rung rungs[kScales];
    bool is_sound = true;
    LACONIC_UNROLL_STEPS
    for (int j = 0; j < kScales; ++j) {
      rungs[j] = rung_of(wide, widened_scale(task.codec.scale, words[s][j]));
      is_sound &= exact::is_finite(rungs[j].step);
    }
    float x[kUnit];
    LACONIC_UNROLL_STEPS
    for (int f = 0; f < kFours; ++f) {
      const std::uint32_t codes =
          codes_of<kBits>(windows[s][f], ((32u * s + lane) * kFours + f) * 4 * bits, 4 * bits);
      LACONIC_UNROLL_STEPS
      for (int j = 0; j < 4; ++j) {
        // As decoded_code(), with the shift to the left in that to the right.
        const std::uint32_t code = (j == 3 ? codes << 1 : codes >> ((3 - j) * bits - 1)) & mask;
        const Rung& rung = rungs[kChannel ? 4 * f + j : 0];
        x[4 * f + j] = (exact::float_of(0x4A800000u | code) - rung.base) * rung.step;
      }
    }
    // A code times anything finite is no NaN.
    if (!is_sound) [[unlikely]]
      settle_nans(x);
    deliver_wide<kKind, kDtype>(task.sink, first + (32u * s + lane) * kUnit, x, old[s]);
  }
}

// The last elements of a tensor, one by one.
template <Delivery kKind, Dtype kDtype, bool kChannel>
__device__ __forceinline__ void dequantise_rest(const WideTask& wide, unsigned lane) {
  const DequantiseTask& task = wide.task;
  const auto bits = static_cast<unsigned>(task.codec.bits);
#ifdef __CUDACC__
#pragma unroll 1
#endif
  for (std::uint64_t i = wide.tiles * kWideTile<kKind, kDtype, kChannel> + lane; i < task.elements;
       i += 32) {
    const std::uint64_t from = i * bits, end = from + bits;
    const std::uint32_t two = std::to_integer<std::uint32_t>(task.codes.at[from / 8]) << 8 |
                              std::to_integer<std::uint32_t>(task.codes.at[(end - 1) / 8]);
    // The second byte is the first again where a code lies in one.
    const auto past = static_cast<unsigned>((end + 7) / 8 * 8 - end);
    const std::uint32_t code = two >> past & ((1u << bits) - 1);
    const std::uint64_t group = kChannel ? i % task.run : i / task.run;
    deliver_one_to<kKind, kDtype>(task.sink, i, exact::decoded_code(code, level_of(task, group)));
  }
}

template <Delivery kKind, Dtype kDtype, bool kChannel, int kBits>
__global__ void __launch_bounds__(kThreads) dequantise_wide(WideTask wide) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint64_t warps = thread_total() / 32;
  for (std::uint64_t tile = thread_number() / 32; tile < wide.tiles; tile += warps)
    dequantise_tile<kKind, kDtype, kChannel, kBits>(wide, tile, lane);
  if (thread_number() / 32 == warps - 1) dequantise_rest<kKind, kDtype, kChannel>(wide, lane);
}

bool is_wide(const DequantiseTask& task) {
  const DeviceSink& sink = task.sink.sink;
  if (sink.dtype != Dtype::f32 && sink.dtype != Dtype::bf16) return false;
  const unsigned unit = sink.kind == Delivery::difference || sink.dtype == Dtype::f32 ? 4 : 8;
  return is_wide(sink) && (!task.is_channel || is_aligned_to(task.scales, 16)) &&
         task.run % unit == 0 && task.codes.alignment >= 4 && task.elements >> 33 == 0 &&
         task.elements >= kWideTile<Delivery::store, Dtype::bf16, false>;
}

template <Delivery kKind, Dtype kDtype, bool kChannel, int kBits>
void dequantise_wide_by(const DequantiseTask& task, Stream stream) {
  const float middle = static_cast<float>(1 << task.codec.bits) / 2;
  const auto fours = static_cast<std::uint32_t>(task.run / 4);
  const WideTask wide{task,           task.elements / kWideTile<kKind, kDtype, kChannel>,
                      Divider(fours), fours,
                      1 / middle,     4194304.0f + middle};
  launch_over(dequantise_wide<kKind, kDtype, kChannel, kBits>, parts_of(wide.tiles, kWarps),
              kThreads, stream, wide);
}

template <Delivery kKind, Dtype kDtype>
void dequantise_wide_to(const DequantiseTask& task, Stream stream) {
  const int bits = task.codec.bits;
  // Where nothing but codes is read, nothing hides what it costs not to know their bits.
  if constexpr (kKind == Delivery::store) {
    if (task.is_channel && bits == 4)
      return dequantise_wide_by<kKind, kDtype, true, 4>(task, stream);
    if (!task.is_channel && bits == 2)
      return dequantise_wide_by<kKind, kDtype, false, 2>(task, stream);
  }
  if (task.is_channel) return dequantise_wide_by<kKind, kDtype, true, 0>(task, stream);
  switch (bits) {
    case 4: return dequantise_wide_by<kKind, kDtype, false, 4>(task, stream);
    case 8: return dequantise_wide_by<kKind, kDtype, false, 8>(task, stream);
    default: return dequantise_wide_by<kKind, kDtype, false, 0>(task, stream);
  }
}

template <Delivery kKind>
void dequantise_to(const DequantiseTask& task, Stream stream) {
  if (!is_wide(task))
    return launch_over(dequantise<kKind>, parts_of(task.elements, 512 * kWarps), kThreads, stream,
                       task);
  task.sink.sink.dtype == Dtype::f32 ? dequantise_wide_to<kKind, Dtype::f32>(task, stream)
                                     : dequantise_wide_to<kKind, Dtype::bf16>(task, stream);
}

QuantiseTask task_of(const Quantise& codec, const QuantiseLayout& layout,
                     const DeviceSource& source, std::uint64_t seed, std::byte* payload) {
  constexpr std::uint64_t kRoundingStream = 2;
  const exact::Rule rule = exact::rule_of(codec);
  const std::uint32_t radix = 1u << codec.bits;
  return {codec,
          rule,
          derive(key_of(seed), kRoundingStream),
          1 / rule.half,
          radix,
          exact::bits_of(exact::kToInteger) * (((radix + 1) * radix + 1) * radix + 1),
          layout.elements,
          layout.groups,
          layout.run,
          source,
          is_aligned(source),
          payload + layout.scales_at,
          CodeStream(codec.bits, payload + layout.codes_at)};
}

void launch_teams(void (*kernel)(QuantiseTask), unsigned lanes, const QuantiseTask& task,
                  Stream stream) {
  const unsigned together = lanes < 32 ? 32 : kThreads;
  const std::uint64_t bands = parts_of(task.groups, together / lanes);
  launch_over<TeamShared>(kernel, parts_of(bands, kThreads / together), kThreads, stream, task);
}

// With few lanes for a group its scale is computed less often. There are blocks for all groups,
// more than the device holds: in a race on an H200 they took 7 % less time than blocks that go
// round.
template <unsigned kLanes, int kSteps>
void launch_at_random(const QuantiseTask& task, Stream stream) {
  constexpr unsigned kTeam = kTeamThreads<Way::random, kLanes>;
  launch<TeamShared>(quantise_teams<Memory::none, kLanes, Way::random, kSteps>,
                     static_cast<unsigned>(parts_of(task.groups, kTeam / kLanes)), kTeam, stream,
                     task);
}

bool quantise_at_random(const QuantiseTask& task, Stream stream) {
  // Fours are counted in 32 bits.
  if (!task.rule.is_stochastic || task.codec.grid != Grid::ends || !is_usual(task) ||
      task.run > 4096 || task.elements >> 34 != 0)
    return false;
  if (task.run <= 256)
    launch_at_random<8, 8>(task, stream);
  else if (task.run <= 1024)
    launch_at_random<32, 8>(task, stream);
  else
    launch_at_random<256, kTeamSteps>(task, stream);
  return true;
}

template <Memory kMemory, Way kWay>
bool quantise_by_teams(const QuantiseTask& task, Stream stream) {
  const auto with = [&](auto* kernel, unsigned lanes) {
    launch_teams(kernel, lanes, task, stream);
    return true;
  };
  constexpr bool kTread = kWay == Way::tread;
  // Fewer kinds for the grids that are used less: each takes a second to compile.
  if constexpr (kTread) {
    if (task.run <= 64) return with(quantise_teams<kMemory, 4, kWay>, 4);
    if (task.run <= 128) return with(quantise_teams<kMemory, 8, kWay>, 8);
  }
  if (task.run <= 256) return with(quantise_teams<kMemory, 16, kWay>, 16);
  if constexpr (kTread) {
    if (task.run <= 512) return with(quantise_teams<kMemory, 32, kWay>, 32);
    // A usual row, without lanes that have nothing to do and without barriers.
    if constexpr (kMemory == Memory::none)
      if (task.run <= 768) return with(quantise_teams<kMemory, 32, kWay, 6>, 32);
  }
  if (task.run <= 1024) return with(quantise_teams<kMemory, 64, kWay>, 64);
  if (task.run <= 4096) return with(quantise_teams<kMemory, 256, kWay>, 256);
  // With a memory the numbers of a thread would not fit its registers.
  if constexpr (kMemory == Memory::none) {
    if (task.run <= 6144) return with(quantise_teams<kMemory, 256, kWay, 6>, 256);
    return with(quantise_teams<kMemory, 256, kWay, 8>, 256);
  }
  return false;
}

bool quantise_by_eights(const QuantiseTask& task, Stream stream) {
  const auto with = [&](auto* kernel, unsigned lanes) {
    launch_over(kernel, parts_of(parts_of(task.groups, 32 / lanes), kWarps), kThreads, stream,
                task);
    return true;
  };
  if (task.source.dtype != Dtype::bf16 || !is_aligned_to(task.source.x, 16) || !is_usual(task) ||
      task.codec.grid != Grid::tread)
    return false;
  // Groups that fill their lanes, but for the last.
  constexpr unsigned kEach = 8 * kEightSteps;
  switch (task.run) {
    case 8 * kEach: return with(quantise_eights<8>, 8);
    case 16 * kEach: return with(quantise_eights<16>, 16);
    case 32 * kEach: return with(quantise_eights<32>, 32);
    default: return false;
  }
}

template <Memory kMemory>
bool quantise_fast(const QuantiseTask& task, Stream stream) {
  if (task.codec.group == ScaleGroup::channel || !task.is_aligned ||
      task.codec.grid == Grid::artefact)
    return false;
  const std::uint64_t run = task.run;
  const bool is_small = run == 8 || run == 16 || run == 32 ||
                        ((run == 64 || run == 128) && task.codec.grid != Grid::tread);
  if (is_small) {
    launch_over(quantise_small<kMemory>, parts_of(task.elements, 256 * kWarps), kThreads, stream,
                task);
    return true;
  }
  if ((run % 8 != 0 && task.groups > 1) || run < 48 || run > 8192) return false;
  if constexpr (kMemory != Memory::none)
    if (run > 4096) {
      launch_over<BlockExtremes>(quantise_group<kMemory, kThreads, 8>, task.groups, kThreads,
                                 stream, task);
      return true;
    }
  if constexpr (kMemory == Memory::none)
    if (quantise_by_eights(task, stream) || quantise_at_random(task, stream)) return true;
  if (task.codec.grid == Grid::tread) return quantise_by_teams<kMemory, Way::tread>(task, stream);
  return quantise_by_teams<kMemory, Way::ends>(task, stream);
}

template <Memory kMemory, Dtype kDtype>
void quantise_channels(const QuantiseTask& task, Extremes* extremes, Stream stream) {
  constexpr unsigned kRowsEach = 8;  // at least, where there are enough
  const auto rows = static_cast<unsigned>(task.elements / task.run);
  const auto fours = static_cast<unsigned>(task.run / 4);
  const auto strips = static_cast<unsigned>(parts_of(fours, kStripFours));
  const auto width = 2 * static_cast<unsigned>(parts_of(fours / 2, strips));
  const std::uint64_t blocks = strips * parts_of(rows, kRowsEach * (kStripThreads / width));
  const auto with = [&](auto* kernel) {
    launch_together<StripShared>(kernel, blocks, kStripThreads, stream,
                                 ChannelTask{task, extremes, rows, fours, strips, width});
  };
  task.codec.grid == Grid::tread ? with(quantise_strips<kMemory, kDtype, true>)
                                 : with(quantise_strips<kMemory, kDtype, false>);
}

template <Memory kMemory>
void quantise_any(const QuantiseTask& task, std::byte* scratch, Stream stream) {
  const AnyTask any{task, task.codec.group == ScaleGroup::channel,
                    reinterpret_cast<Extremes*>(scratch),
                    reinterpret_cast<Level*>(scratch + task.groups * sizeof(Extremes))};
  if (any.is_channel && task.run % 8 == 0 && task.is_aligned && task.elements >> 33 == 0 &&
      (task.source.dtype == Dtype::f32 ||
       (task.source.dtype == Dtype::bf16 && is_aligned_to(task.source.x, 16)))) {
    task.source.dtype == Dtype::f32
        ? quantise_channels<kMemory, Dtype::f32>(task, any.extremes, stream)
        : quantise_channels<kMemory, Dtype::bf16>(task, any.extremes, stream);
    return;
  }
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
  launch_over(any_codes<kMemory>, parts_of(task.elements, 8 * kThreads), kThreads, stream, any);
}

template <Memory kMemory>
void quantise_with(const QuantiseTask& task, std::byte* scratch, Stream stream) {
  if (!quantise_fast<kMemory>(task, stream)) quantise_any<kMemory>(task, scratch, stream);
}

}  // namespace

std::uint64_t quantise_scratch_bytes(const Quantise&, const QuantiseLayout& layout) {
  return layout.groups * (sizeof(Extremes) + sizeof(Level));
}

void device_quantise(const Quantise& codec, const QuantiseLayout& layout,
                     const DeviceSource& source, std::uint64_t seed, std::byte* payload,
                     std::byte* scratch, Stream stream) {
  if (layout.elements == 0) return;
  const QuantiseTask task = task_of(codec, layout, source, seed, payload);
  switch (source.memory) {
    case Memory::none: return quantise_with<Memory::none>(task, scratch, stream);
    case Memory::feedback: return quantise_with<Memory::feedback>(task, scratch, stream);
    case Memory::difference: return quantise_with<Memory::difference>(task, scratch, stream);
  }
}

void device_dequantise(const Quantise& codec, const QuantiseLayout& layout,
                       const std::byte* payload, const DeviceSink& sink, Stream stream) {
  const bool is_power = (layout.run & (layout.run - 1)) == 0;
  const DequantiseTask task{
      codec,
      layout.elements,
      layout.run,
      is_power ? std::countr_zero(layout.run) : -1,
      codec.group == ScaleGroup::channel,
      payload + layout.scales_at,
      CodeStream(codec.bits, const_cast<std::byte*>(payload) + layout.codes_at),
      view_of(sink)};
  switch (sink.kind) {
    case Delivery::store: return dequantise_to<Delivery::store>(task, stream);
    case Delivery::add: return dequantise_to<Delivery::add>(task, stream);
    case Delivery::difference: return dequantise_to<Delivery::difference>(task, stream);
  }
}

}  // namespace laconic::kernel
