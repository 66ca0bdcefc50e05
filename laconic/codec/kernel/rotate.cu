// Quantise with rotated blocks. Four warps take a tile of 4096 elements, which is one rotated block
// or several; a thread has 32 of them in registers. What a stage of the Hadamard transform adds
// must be in one thread, and between stages 1 and 2048 there are twelve bits of an element's
// number, so threads exchange what they have through shared memory:
//
//   fours    bits 0, 1 and three high ones: as numbers and codes lie in memory
//   columns  bits 2 ... 6
//   run      bits 0, 1, 7, 8, 9, where a warp cannot have the high ones of a block to itself
//
// Blocks of up to 1024 elements belong to a warp, which needs no other: its high bits are 7, 8, 9.
// Of wider ones (kWide) a warp has every fourth 128 elements, and its high bits are 9, 10, 11. The
// order of stages is that of the format, so sums round as on the CPU whoever adds them.
//
// A thread always writes to the places in shared memory that it read last. So it need not wait
// before it writes, only before it reads what others wrote.
//
// What is left behind the last whole tile is done by plain loops over shared memory. The last block
// may be shorter; it is cut into powers of two, the largest first, so part p of it begins at a
// multiple of p. An element then takes part in the stages h < p, and its partner i ^ h is in the
// same part.
#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/code_stream.cuh"

#ifdef __CUDACC__
#define LACONIC_UNROLL_STEPS _Pragma("unroll")
#define LACONIC_STAY_ROLLED _Pragma("unroll 1")
#else
#define LACONIC_UNROLL_STEPS
#define LACONIC_STAY_ROLLED
#endif

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / 32;
constexpr unsigned kTile = 4096;
constexpr unsigned kWarpTile = kTile / kWarps;
constexpr unsigned kEach = kTile / kThreads;  // elements of a thread
constexpr unsigned kSteps = kEach / 4;        // fours of a thread
constexpr unsigned kLine = 128;               // elements of a warp side by side
constexpr unsigned kLeastBlock = 8;
constexpr std::int32_t kLowest = -2147483647 - 1;

// From a four of a thread to its next, in elements; and in shared memory, where the columns of
// neighbouring lanes then lie in different banks.
template <bool kWide>
constexpr unsigned kStride = kLine*(kWide ? kWarps : 1);
template <bool kWide>
constexpr unsigned kRow = kStride<kWide> + 4;

// Groups that a warp has elements of.
template <bool kWide>
constexpr unsigned kGroups = kWide ? 2 : kWarpTile / kLeastBlock;

// What turns elements of a group into codes and back; low and high are 0 in a dead one.
struct alignas(16) Scaling {
  float factor, low, high, step;
};

template <bool kWide>
struct RotateShared {
  float values[kTile + kTile / kLine * 4];
  Scaling scalings[kWarps * kGroups<kWide>];
  Extremes extremes[kWarps * kGroups<kWide>];  // of what a warp has of each group
};

// (4194304 + code / 2 as a float, minus zero) * step
struct alignas(8) Unscaling {
  float zero, step;
};

template <bool kWide>
struct UnrotateShared {
  float values[kTile + kTile / kLine * 4];
  Unscaling unscalings[kWarps * kGroups<kWide>];
};

struct RotateTask {
  Quantise codec;
  exact::Rule rule;
  std::uint64_t seed;
  Key signs, noise;
  std::uint64_t elements;
  unsigned block, shift;  // block is 2 to the power of shift
  DeviceSource source;
  bool is_aligned;
  std::byte* payload;
  std::byte* scales;
  CodeStream codes;
  SinkView sink;
};

__device__ __forceinline__ unsigned lane_number() {
  return threadIdx.x % 32;
}
__device__ __forceinline__ unsigned warp_number() {
  return threadIdx.x / 32;
}

// The elements of a tile that a warp's fours begin with, those of its groups, and those of a lane's
// four in a step.
template <bool kWide>
__device__ __forceinline__ unsigned first_of_warp() {
  return warp_number() * (kWide ? kLine : kWarpTile);
}
template <bool kWide>
__device__ __forceinline__ unsigned first_of_groups() {
  return kWide ? 0 : first_of_warp<kWide>();
}
template <bool kWide>
__device__ __forceinline__ unsigned first_of_four(unsigned step) {
  return first_of_warp<kWide>() + step * kStride<kWide> + lane_number() * 4;
}

// --- the transform

// A stage of a thread's elements: pairs are `by` apart.
__device__ __forceinline__ void stage(float (&x)[kEach], unsigned by) {
  LACONIC_UNROLL_STEPS
  for (unsigned e = 0; e < kEach; ++e) {
    if ((e & by) != 0) continue;
    const float a = x[e], b = x[e + by];
    x[e] = a + b;
    x[e + by] = a - b;
  }
}

__device__ __forceinline__ void put_four(float* to, const float (&x)[kEach], unsigned step) {
  *reinterpret_cast<float4*>(to) =
      float4{x[4 * step], x[4 * step + 1], x[4 * step + 2], x[4 * step + 3]};
}
__device__ __forceinline__ void take_four(const float* from, float (&x)[kEach], unsigned step) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  x[4 * step] = v.x;
  x[4 * step + 1] = v.y;
  x[4 * step + 2] = v.z;
  x[4 * step + 3] = v.w;
}

// Where a thread's fours lie in shared memory, kRow apart.
template <bool kWide>
__device__ __forceinline__ float* own_fours(float* values) {
  constexpr unsigned kWarpRoom = kWide ? kLine : kWarpTile + kWarpTile / kLine * 4;
  return values + warp_number() * kWarpRoom + lane_number() * 4;
}

// The transform of fours, in place. Requires, if kWide: all threads of the block are here.
template <bool kWide>
__device__ __forceinline__ void transform(const RotateTask& task, float* values,
                                          float (&x)[kEach]) {
  const unsigned lane = lane_number();
  float* const fours = own_fours<kWide>(values);
  stage(x, 1);
  stage(x, 2);
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) put_four(fours + s * kRow<kWide>, x, s);
  __syncwarp();

  float* const column = fours - lane * 4 + lane / 4 * kRow<kWide> + lane % 4;
  LACONIC_UNROLL_STEPS
  for (unsigned e = 0; e < kEach; ++e) x[e] = column[e * 4];
  LACONIC_UNROLL_STEPS
  for (unsigned by = 1; by < kEach; by *= 2)
    if (kWide || by * 4 < task.block) stage(x, by);
  LACONIC_UNROLL_STEPS
  for (unsigned e = 0; e < kEach; ++e) column[e * 4] = x[e];

  if constexpr (kWide) {
    __syncthreads();
    // Two rows for each warp.
    constexpr unsigned kHalf = kSteps / 2;
    float* const run = values + warp_number() * 2 * kRow<kWide> + lane * 4;
    LACONIC_UNROLL_STEPS
    for (unsigned s = 0; s < kSteps; ++s)
      take_four(run + s / kHalf * kRow<kWide> + s % kHalf * kLine, x, s);
    LACONIC_UNROLL_STEPS
    for (unsigned by = 4; by < kEach; by *= 2) stage(x, by);
    LACONIC_UNROLL_STEPS
    for (unsigned s = 0; s < kSteps; ++s)
      put_four(run + s / kHalf * kRow<kWide> + s % kHalf * kLine, x, s);
    __syncthreads();
  } else {
    __syncwarp();
  }

  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) take_four(fours + s * kRow<kWide>, x, s);
  LACONIC_UNROLL_STEPS
  for (unsigned by = kWide ? 8 : 4; by < kEach; by *= 2)
    if (by / 4 * kStride<kWide> < task.block) stage(x, by);
  const float norm = exact::hadamard_norm(task.shift);
  LACONIC_UNROLL_STEPS
  for (unsigned e = 0; e < kEach; ++e) x[e] = x[e] * norm;
}

// --- signs

// Lane l draws the word of signs number l % 4 of this warp's 128 elements in step l / 4: they are
// one block of Philox.
template <bool kWide>
__device__ __forceinline__ std::uint32_t drawn_signs(const RotateTask& task, std::uint64_t tile) {
  const unsigned lane = lane_number();
  const exact::FourWords words = exact::philox_words(
      task.signs, (tile + first_of_warp<kWide>() + lane / 4 * kStride<kWide>) / kLine);
  const std::uint32_t low = lane % 2 == 0 ? words.at[0] : words.at[1];
  const std::uint32_t high = lane % 2 == 0 ? words.at[2] : words.at[3];
  return lane % 4 < 2 ? low : high;
}

__device__ __forceinline__ void apply_signs(std::uint32_t drawn, float (&x)[kEach]) {
  const unsigned lane = lane_number();
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    // The sign of the last of four is the highest bit.
    const std::uint32_t signs = __shfl_sync(kAllLanes, drawn, s * 4 + lane / 8)
                                << (28 - lane % 8 * 4);
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j)
      x[4 * s + j] =
          exact::float_of(exact::bits_of(x[4 * s + j]) ^ (signs << (3 - j) & exact::kSignBit));
  }
}

// --- numbers

template <bool kWide>
__device__ __forceinline__ void load_known(Dtype dtype, const void* from, std::uint64_t tile,
                                           float (&x)[kEach]) {
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    const Four four = load_four(dtype, from, tile + first_of_four<kWide>(s), 4, true);
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j) x[4 * s + j] = four.at[j];
  }
}

// The common types apart: where nothing is decided between loads they are under way together. The
// others take less code by way of shared memory.
template <bool kWide>
__device__ __forceinline__ void load_numbers(Dtype dtype, const void* from, bool is_aligned,
                                             std::uint64_t tile, float* values, float (&x)[kEach]) {
  if (is_aligned && dtype == Dtype::f32) return load_known<kWide>(Dtype::f32, from, tile, x);
  if (is_aligned && dtype == Dtype::bf16) return load_known<kWide>(Dtype::bf16, from, tile, x);
  float* const fours = own_fours<kWide>(values);
  LACONIC_STAY_ROLLED
  for (unsigned s = 0; s < kSteps; ++s)
    store_floats(fours, s * kRow<kWide>,
                 load_four(dtype, from, tile + first_of_four<kWide>(s), 4, is_aligned), 4, true);
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) take_four(fours + s * kRow<kWide>, x, s);
}

// --- scales

__device__ __forceinline__ void raise(Extremes& extremes, const Extremes& by) {
  if (by.magnitude > extremes.magnitude) extremes.magnitude = by.magnitude;
  if (by.highest > extremes.highest) extremes.highest = by.highest;
}

template <bool kWide>
__device__ __forceinline__ void find_extremes(const RotateTask& task, const float (&x)[kEach],
                                              Extremes* found) {
  const unsigned lane = lane_number();
  // As unsigned numbers, negative floats are the largest.
  std::int32_t highest = kLowest;
  std::uint32_t largest = 0;
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j) {
      const std::uint32_t bits = exact::bits_of(x[4 * s + j]);
      highest =
          static_cast<std::int32_t>(bits) > highest ? static_cast<std::int32_t>(bits) : highest;
      largest = bits > largest ? bits : largest;
    }
    if (((s + 1) * kStride<kWide> & (task.block - 1)) != 0) continue;  // the group goes on
    const auto lowest = static_cast<std::int32_t>(largest ^ exact::kSignBit);
    Extremes extremes{highest > lowest ? highest : lowest, highest};
    if (kWide || task.block >= kLine) {
      extremes = {__reduce_max_sync(kAllLanes, extremes.magnitude),
                  __reduce_max_sync(kAllLanes, extremes.highest)};
      if (lane == 0) found[s * kStride<kWide> >> task.shift] = extremes;
    } else {
      for (unsigned by = 1; 4 * by < task.block; by *= 2) {
        raise(extremes, {__shfl_xor_sync(kAllLanes, extremes.magnitude, by),
                         __shfl_xor_sync(kAllLanes, extremes.highest, by)});
      }
      if ((lane * 4 & (task.block - 1)) == 0)
        found[(s * kStride<kWide> + lane * 4) >> task.shift] = extremes;
    }
    highest = kLowest;
    largest = 0;
  }
}

__device__ __forceinline__ void store_scale(const RotateTask& task, std::uint64_t group,
                                            float scale) {
  const std::uint32_t stored = exact::stored_scale(task.codec.scale, scale);
  if (task.codec.scale == ScaleType::f32)
    reinterpret_cast<std::uint32_t*>(task.scales)[group] = stored;
  else if (task.codec.scale == ScaleType::f16)
    reinterpret_cast<std::uint16_t*>(task.scales)[group] = static_cast<std::uint16_t>(stored);
  else
    reinterpret_cast<std::uint8_t*>(task.scales)[group] = static_cast<std::uint8_t>(stored);
}

__device__ __forceinline__ float load_scale(const RotateTask& task, std::uint64_t group) {
  if (task.codec.scale == ScaleType::f32)
    return exact::loaded_scale(task.codec.scale,
                               reinterpret_cast<const std::uint32_t*>(task.scales)[group]);
  if (task.codec.scale == ScaleType::f16)
    return exact::loaded_scale(task.codec.scale,
                               reinterpret_cast<const std::uint16_t*>(task.scales)[group]);
  return exact::loaded_scale(task.codec.scale,
                             reinterpret_cast<const std::uint8_t*>(task.scales)[group]);
}

__device__ __forceinline__ Scaling scaling_of(const RotateTask& task, float scale) {
  const Level level = exact::encode_level(task.codec, scale);
  if (level.encode_factor == 0) return {0, 0, 0, level.step};
  return {level.encode_factor, task.rule.low, task.rule.high, level.step};
}

// A lane for each group. Of wide groups every warp asks what the others found, and chooses the
// same.
template <bool kWide>
__device__ __forceinline__ void choose_scalings(const RotateTask& task, std::uint64_t tile,
                                                RotateShared<kWide>& shared) {
  const unsigned own = warp_number() * kGroups<kWide>;
  if constexpr (kWide)
    __syncthreads();
  else
    __syncwarp();
  const std::uint64_t first = (tile + first_of_groups<kWide>()) >> task.shift;
  const unsigned groups = (kWide ? kTile : kWarpTile) >> task.shift;
  for (unsigned g = lane_number(); g < groups; g += 32) {
    Extremes extremes = shared.extremes[own + g];
    if constexpr (kWide)
      for (unsigned w = 0; w < kWarps; ++w)
        raise(extremes, shared.extremes[w * kGroups<kWide> + g]);
    const float scale = exact::choose_scale(task.codec, extremes);
    if (!kWide || own == 0) store_scale(task, first + g, scale);
    shared.scalings[own + g] = scaling_of(task, scale);
  }
  __syncwarp();
}

// --- codes

// As exact::round_to_code(): whatever a dead group holds is limited to 0, NaN too. `middle` is that
// of the grid ends.
template <bool kTread>
__device__ __forceinline__ float round_to_code(const exact::Rule& rule, const Scaling& scaling,
                                               float middle, float v, std::uint32_t noise) {
  float y = v * scaling.factor;
  if constexpr (!kTread) {
    y = y + middle;
    if (rule.is_stochastic) y = floorf(y + exact::noise_of(noise));
  }
  return fminf(fmaxf(y, scaling.low), scaling.high) + rule.to_integer;
}

template <bool kTread>
__device__ __forceinline__ float middle_of(const exact::Rule& rule, const Scaling& scaling) {
  return kTread || scaling.factor == 0 ? 0.0f : rule.half - 0.5f;
}

template <bool kTread>
__device__ __forceinline__ float decoded(const exact::Rule& rule, const Scaling& scaling,
                                         float middle, float rounded) {
  float q = rounded - rule.to_integer;
  if constexpr (!kTread) q = q - middle;
  return q * scaling.step;
}

// Codes of fours; and in place of the elements, if kDecode, what they decode to.
template <bool kWide, bool kTread, bool kDecode>
__device__ __forceinline__ void make_codes(const RotateTask& task, std::uint64_t tile,
                                           const Scaling* scalings, float (&x)[kEach],
                                           std::uint32_t (&codes)[kSteps]) {
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    const unsigned i = first_of_four<kWide>(s);
    const Scaling scaling = scalings[(i - first_of_groups<kWide>()) >> task.shift];
    const float middle = middle_of<kTread>(task.rule, scaling);
    exact::FourWords words = {{0, 0, 0, 0}};
    if (!kTread && task.rule.is_stochastic) words = exact::philox_words(task.noise, (tile + i) / 4);
    codes[s] = 0;
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j) {
      float& v = x[4 * s + j];
      const float rounded = round_to_code<kTread>(task.rule, scaling, middle, v, words.at[j]);
      codes[s] = codes[s] << task.codec.bits | exact::code_of(rounded);
      if constexpr (kDecode) v = decoded<kTread>(task.rule, scaling, middle, rounded);
    }
  }
}

template <bool kWide>
__device__ __forceinline__ void store_codes(const CodeStream& stream, std::uint64_t tile,
                                            const std::uint32_t (&codes)[kSteps]) {
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; s += 2) {
    const std::uint64_t a = tile + first_of_warp<kWide>() + s * kStride<kWide>;
    stream.store_pair_of<true>(a, a + kStride<kWide>, lane_number(), kLine, kLine, codes[s],
                               codes[s + 1]);
  }
}

// The other way round, all loads first: even lanes read eights of one step, odd ones of the next.
template <bool kWide>
__device__ __forceinline__ void load_codes(const CodeStream& stream, std::uint64_t tile,
                                           std::uint32_t (&codes)[kSteps]) {
  const unsigned lane = lane_number();
  const bool is_odd = lane % 2 != 0;
  const std::uint64_t first =
      tile + first_of_warp<kWide>() + (is_odd ? kStride<kWide> : 0) + lane / 2 * 8;
  std::uint64_t words[kSteps / 2];
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; s += 2)
    words[s / 2] = stream.load_eight((first + s * kStride<kWide>) / 8, 8);
  const std::uint32_t mask = stream.bits == 8 ? ~0u : (1u << 4 * stream.bits) - 1;
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; s += 2) {
    const auto high = static_cast<std::uint32_t>(words[s / 2] >> 4 * stream.bits) & mask;
    const auto low = static_cast<std::uint32_t>(words[s / 2]) & mask;
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_odd ? high : low, 1);
    codes[s] = is_odd ? other : high;
    codes[s + 1] = is_odd ? low : other;
  }
}

// use(stream), to which four aligned bits are not news. Most codes are those.
template <class Use>
__device__ __forceinline__ void with_known_bits(CodeStream stream, const Use& use) {
  if (stream.bits == 4 && stream.alignment >= 4) {
    stream.bits = 4;
    stream.alignment = 4;
    use(stream);
  } else {
    use(stream);
  }
}

// --- what is left behind the last whole tile

struct Rest {
  unsigned shift;  // of the size of a block
  unsigned whole;  // elements in blocks that are not cut
  unsigned size;   // elements of all

  // The first bit in which there are more of them than i decides: a part begins at what both share.
  __device__ __forceinline__ unsigned log_part_of(unsigned i) const {
    if (i < whole) return shift;
    if (i >= size) return 0;
    return 31u - static_cast<unsigned>(__clz(static_cast<int>((size - whole) ^ (i - whole))));
  }
};

__device__ __forceinline__ Rest rest_of(const RotateTask& task) {
  const auto size = static_cast<unsigned>(task.elements % kTile);
  return {task.shift, size >> task.shift << task.shift, size};
}

// Elements of a tile a four at a time, this thread's first and on to the next.
constexpr unsigned kFourStride = kThreads * 4;

__device__ __forceinline__ void apply_signs_at(const RotateTask& task, std::uint64_t i,
                                               Four& four) {
  const exact::FourWords words = exact::philox_words(task.signs, i / kLine);
  const auto which = static_cast<unsigned>(i / 32 % 4);
  const std::uint32_t low = which == 0 ? words.at[0] : words.at[1];
  const std::uint32_t high = which == 2 ? words.at[2] : words.at[3];
  const std::uint32_t signs = (which < 2 ? low : high) >> i % 32;
  for (unsigned j = 0; j < 4; ++j)
    four.at[j] = exact::float_of(exact::bits_of(four.at[j]) ^ signs >> j << 31);
}

// In place, without the norm. All threads of the block wait for each other, at the end too.
__device__ __forceinline__ void transform_rest(const Rest& rest, float* values) {
  constexpr unsigned kPairs = kEach / 2;
  LACONIC_STAY_ROLLED
  for (unsigned h = 1; h >> rest.shift == 0; h *= 2) {
    __syncthreads();
    float a[kPairs], b[kPairs];
    LACONIC_UNROLL_STEPS
    for (unsigned p = 0; p < kPairs; ++p) {
      const unsigned pair = p * kThreads + threadIdx.x, i = 2 * pair - (pair & (h - 1));
      a[p] = values[i];
      b[p] = values[i + h];
    }
    LACONIC_UNROLL_STEPS
    for (unsigned p = 0; p < kPairs; ++p) {
      const unsigned pair = p * kThreads + threadIdx.x, i = 2 * pair - (pair & (h - 1));
      if (1u << rest.log_part_of(i) <= h) continue;
      values[i] = a[p] + b[p];
      values[i + h] = a[p] - b[p];
    }
  }
  __syncthreads();
}

__device__ __forceinline__ Four normed_four(const Rest& rest, const float* values, unsigned i) {
  Four four = load_four(Dtype::f32, values, i, 4, true);
  for (unsigned j = 0; j < 4; ++j)
    four.at[j] = four.at[j] * exact::hadamard_norm(rest.log_part_of(i + j));
  return four;
}

template <Memory kMemory, bool kWide, bool kTread>
__device__ __forceinline__ void rotate_rest(const RotateTask& task, bool& is_unsound) {
  const DeviceSource& source = task.source;
  const Rest rest = rest_of(task);
  const std::uint64_t tile = task.elements - rest.size;
  const unsigned groups = (rest.size + task.block - 1) >> task.shift;
  auto& shared = shared_memory<RotateShared<kWide>>();
  const auto load_sent = [&](unsigned i, Four& before) {
    const unsigned left = i < rest.size ? rest.size - i : 0;
    Four sent = load_four(source.dtype, source.x, tile + i, left, task.is_aligned);
    if constexpr (kMemory != Memory::none) {
      before = load_four(Dtype::f32, source.before, tile + i, left, task.is_aligned);
      for (unsigned j = 0; j < 4; ++j) sent.at[j] = combined(kMemory, sent.at[j], before.at[j]);
    }
    return sent;
  };
  LACONIC_STAY_ROLLED
  for (unsigned i = threadIdx.x * 4; i < kTile; i += kFourStride) {
    Four before, sent = load_sent(i, before);
    apply_signs_at(task, tile + i, sent);
    store_floats(shared.values, i, sent, 4, true);
  }
  LACONIC_STAY_ROLLED
  for (unsigned g = threadIdx.x; g < groups; g += kThreads) shared.extremes[g] = {0, kLowest};
  transform_rest(rest, shared.values);
  LACONIC_STAY_ROLLED
  for (unsigned i = threadIdx.x * 4; i < rest.size; i += kFourStride) {
    const Four four = normed_four(rest, shared.values, i);
    store_floats(shared.values, i, four, 4, true);
    Extremes extremes{0, kLowest};
    for (unsigned j = 0; j < 4 && i + j < rest.size; ++j) {
      const auto bits = static_cast<std::int32_t>(exact::bits_of(four.at[j]));
      raise(extremes, {bits & 0x7FFFFFFF, bits});
    }
    atomicMax(&shared.extremes[i >> task.shift].magnitude, extremes.magnitude);
    atomicMax(&shared.extremes[i >> task.shift].highest, extremes.highest);
  }
  __syncthreads();
  LACONIC_STAY_ROLLED
  for (unsigned g = threadIdx.x; g < groups; g += kThreads) {
    const float scale = exact::choose_scale(task.codec, shared.extremes[g]);
    store_scale(task, (tile >> task.shift) + g, scale);
    shared.scalings[g] = scaling_of(task, scale);
  }
  __syncthreads();
  // Eight codes are whole bytes.
  LACONIC_STAY_ROLLED
  for (unsigned first = threadIdx.x * 8; first < rest.size; first += kThreads * 8) {
    const Scaling scaling = shared.scalings[first >> task.shift];
    const float middle = middle_of<kTread>(task.rule, scaling);
    exact::FourWords words = {{0, 0, 0, 0}};
    std::uint64_t eight = 0;
    LACONIC_STAY_ROLLED
    for (unsigned i = first; i < first + 8; ++i) {
      if (!kTread && task.rule.is_stochastic && i % 4 == 0)
        words = exact::philox_words(task.noise, (tile + i) / 4);
      float& v = shared.values[i];
      const float rounded = round_to_code<kTread>(task.rule, scaling, middle, v, words.at[0]);
      words = {{words.at[1], words.at[2], words.at[3], 0}};
      eight = eight << task.codec.bits | (i < rest.size ? exact::code_of(rounded) : 0);
      v = decoded<kTread>(task.rule, scaling, middle, rounded);
    }
    task.codes.store_eight((tile + first) / 8, eight, rest.size - first);
  }
  if constexpr (kMemory == Memory::none) return;
  transform_rest(rest, shared.values);
  LACONIC_STAY_ROLLED
  for (unsigned i = threadIdx.x * 4; i < rest.size; i += kFourStride) {
    Four before, after = normed_four(rest, shared.values, i);
    const Four sent = load_sent(i, before);
    apply_signs_at(task, tile + i, after);
    for (unsigned j = 0; j < 4; ++j) {
      after.at[j] = remembered(kMemory, sent.at[j], after.at[j], before.at[j]);
      is_unsound |= i + j < rest.size && !exact::is_finite(after.at[j]);
    }
    store_floats(source.after, tile + i, after, rest.size - i, task.is_aligned);
  }
}

// --- encoding

template <Memory kMemory, bool kWide, bool kTread>
__device__ __forceinline__ void rotate_tile(const RotateTask& task, std::uint64_t tile,
                                            bool& is_unsound) {
  constexpr bool kRemembers = kMemory != Memory::none;
  auto& shared = shared_memory<RotateShared<kWide>>();
  const DeviceSource& source = task.source;
  float x[kEach], kept[kEach];  // kept: what is sent, or what was before
  load_numbers<kWide>(source.dtype, source.x, task.is_aligned, tile, shared.values, x);
  if constexpr (kRemembers) {
    load_numbers<kWide>(Dtype::f32, source.before, task.is_aligned, tile, shared.values, kept);
    LACONIC_UNROLL_STEPS
    for (unsigned e = 0; e < kEach; ++e) {
      x[e] = combined(kMemory, x[e], kept[e]);
      if constexpr (kMemory == Memory::feedback) kept[e] = x[e];
    }
  }
  const std::uint32_t drawn = drawn_signs<kWide>(task, tile);
  apply_signs(drawn, x);
  transform<kWide>(task, shared.values, x);

  const unsigned own = warp_number() * kGroups<kWide>;
  find_extremes<kWide>(task, x, shared.extremes + own);
  choose_scalings<kWide>(task, tile, shared);
  std::uint32_t codes[kSteps];
  make_codes<kWide, kTread, kRemembers>(task, tile, shared.scalings + own, x, codes);
  with_known_bits(task.codes,
                  [&](const CodeStream& stream) { store_codes<kWide>(stream, tile, codes); });

  if constexpr (kRemembers) {
    transform<kWide>(task, shared.values, x);
    apply_signs(drawn, x);
    LACONIC_UNROLL_STEPS
    for (unsigned s = 0; s < kSteps; ++s) {
      Four after;
      LACONIC_UNROLL_STEPS
      for (unsigned j = 0; j < 4; ++j) {
        const unsigned e = 4 * s + j;
        after.at[j] = remembered(kMemory, kept[e], x[e], kept[e]);
        is_unsound |= !exact::is_finite(after.at[j]);
      }
      store_floats(source.after, tile + first_of_four<kWide>(s), after, 4, task.is_aligned);
    }
  }
}

// The last block of threads has what is left, before its tiles: it takes longer.
__device__ __forceinline__ bool has_rest(const RotateTask& task) {
  return blockIdx.x == gridDim.x - 1 && task.elements % kTile != 0;
}

// Blocks of threads that a processor shall have room for: with more, registers spill.
constexpr unsigned room_for(bool has_kept) {
  return has_kept ? 5 : 6;
}

template <Memory kMemory, bool kWide, bool kTread>
__global__ void __launch_bounds__(kThreads, room_for(kMemory != Memory::none))
    rotate(RotateTask task) {
  if (blockIdx.x == 0 && threadIdx.x < 8)
    task.payload[threadIdx.x] = static_cast<std::byte>(task.seed >> 8 * threadIdx.x);
  bool is_unsound = false;
  if (has_rest(task)) {
    rotate_rest<kMemory, kWide, kTread>(task, is_unsound);
    __syncthreads();
  }
  for (std::uint64_t tile = std::uint64_t{blockIdx.x} * kTile; tile + kTile <= task.elements;
       tile += std::uint64_t{gridDim.x} * kTile)
    rotate_tile<kMemory, kWide, kTread>(task, tile, is_unsound);
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
}

// --- decoding

__device__ __forceinline__ Unscaling load_unscaling(const RotateTask& task, std::uint64_t group) {
  const Level level = exact::decode_level(task.codec, load_scale(task, group));
  return {4194304.0f + level.middle, level.step};
}

// As exact::decoded_code(), from twice the code, but that a NaN may be any: the last one counts.
__device__ __forceinline__ float decoded_twice(std::uint32_t twice, const Unscaling& unscaling) {
  return (exact::float_of(0x4A800000u | twice) - unscaling.zero) * unscaling.step;
}

template <bool kWide>
__device__ __forceinline__ void decode_fours(const RotateTask& task, const Unscaling* unscalings,
                                             const std::uint32_t (&codes)[kSteps],
                                             float (&x)[kEach]) {
  const auto bits = static_cast<unsigned>(task.codec.bits);
  const std::uint32_t mask = (2u << bits) - 2;
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    const unsigned i = first_of_four<kWide>(s) - first_of_groups<kWide>();
    const Unscaling unscaling = unscalings[i >> task.shift];
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j) {
      const std::uint32_t twice = j == 3 ? codes[s] << 1 : codes[s] >> ((3 - j) * bits - 1);
      x[4 * s + j] = decoded_twice(twice & mask, unscaling);
    }
  }
}

// All aligned floats. `before` has been loaded already, unless kKind is store.
template <Delivery kKind, bool kWide>
__device__ __forceinline__ void deliver_floats(const DeviceSink& sink, std::uint64_t tile,
                                               const float (&x)[kEach],
                                               const float (&before)[kEach]) {
  const bool has_copy = kKind == Delivery::difference && sink.out != nullptr &&
                        sink.out != static_cast<void*>(sink.after);
  auto* const out = kKind == Delivery::difference ? sink.after : static_cast<float*>(sink.out);
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) {
    const std::uint64_t i = tile + first_of_four<kWide>(s);
    Four four;
    LACONIC_UNROLL_STEPS
    for (unsigned j = 0; j < 4; ++j)
      four.at[j] = exact::canonical(kKind == Delivery::store ? x[4 * s + j]
                                                             : before[4 * s + j] + x[4 * s + j]);
    store_floats(out, i, four, 4, true);
    if (has_copy) store_floats(static_cast<float*>(sink.out), i, four, 4, true);
  }
}

__device__ __forceinline__ void unrotate_rest(const RotateTask& task, float* values) {
  const Rest rest = rest_of(task);
  const std::uint64_t tile = task.elements - rest.size;
  LACONIC_STAY_ROLLED
  for (unsigned first = threadIdx.x * 8; first < kTile; first += kThreads * 8) {
    const bool is_there = first < rest.size;
    const Unscaling unscaling =
        is_there ? load_unscaling(task, (tile + first) >> task.shift) : Unscaling{};
    std::uint64_t eight =
        is_there ? task.codes.load_eight((tile + first) / 8, rest.size - first) : 0;
    LACONIC_STAY_ROLLED
    for (unsigned j = 8; j-- > 0;) {
      const auto code = static_cast<std::uint32_t>(eight) & ((1u << task.codec.bits) - 1);
      eight >>= task.codec.bits;
      values[first + j] = first + j < rest.size ? decoded_twice(code << 1, unscaling) : 0.0f;
    }
  }
  transform_rest(rest, values);
  LACONIC_STAY_ROLLED
  for (unsigned i = threadIdx.x * 4; i < rest.size; i += kFourStride) {
    Four four = normed_four(rest, values, i);
    apply_signs_at(task, tile + i, four);
    for (float& value : four.at) value = exact::canonical(value);
    deliver_four(task.sink, tile + i, four, rest.size - i);
  }
}

// kFloats: the sink has aligned floats and is of that kind; otherwise it is any.
template <Delivery kKind, bool kFloats, bool kWide>
__device__ __forceinline__ void unrotate_tile(const RotateTask& task, std::uint64_t tile) {
  auto& shared = shared_memory<UnrotateShared<kWide>>();
  Unscaling* const unscalings = shared.unscalings + warp_number() * kGroups<kWide>;
  const DeviceSink& sink = task.sink.sink;
  float x[kEach], before[kEach];
  if constexpr (kFloats && kKind != Delivery::store)
    load_known<kWide>(Dtype::f32, kKind == Delivery::add ? sink.out : sink.before, tile, before);
  std::uint32_t codes[kSteps];
  with_known_bits(task.codes,
                  [&](const CodeStream& stream) { load_codes<kWide>(stream, tile, codes); });
  const std::uint64_t group = (tile + first_of_groups<kWide>()) >> task.shift;
  for (unsigned g = lane_number(); g < (kWide ? kTile : kWarpTile) >> task.shift; g += 32)
    unscalings[g] = load_unscaling(task, group + g);
  __syncwarp();
  decode_fours<kWide>(task, unscalings, codes, x);
  transform<kWide>(task, shared.values, x);
  apply_signs(drawn_signs<kWide>(task, tile), x);
  if constexpr (kFloats) return deliver_floats<kKind, kWide>(sink, tile, x, before);
  float* const fours = own_fours<kWide>(shared.values);
  LACONIC_UNROLL_STEPS
  for (unsigned s = 0; s < kSteps; ++s) put_four(fours + s * kRow<kWide>, x, s);
  LACONIC_STAY_ROLLED
  for (unsigned s = 0; s < kSteps; ++s) {
    Four four = load_four(Dtype::f32, fours, s * kRow<kWide>, 4, true);
    for (float& value : four.at) value = exact::canonical(value);
    deliver_four(task.sink, tile + first_of_four<kWide>(s), four, 4);
  }
}

template <Delivery kKind, bool kFloats, bool kWide>
__global__ void __launch_bounds__(kThreads, room_for(kKind != Delivery::store))
    unrotate(RotateTask task) {
  if (has_rest(task)) {
    unrotate_rest(task, shared_memory<UnrotateShared<kWide>>().values);
    __syncthreads();
  }
  for (std::uint64_t tile = std::uint64_t{blockIdx.x} * kTile; tile + kTile <= task.elements;
       tile += std::uint64_t{gridDim.x} * kTile)
    unrotate_tile<kKind, kFloats, kWide>(task, tile);
}

RotateTask task_of(const Quantise& codec, const QuantiseLayout& layout, std::uint64_t seed,
                   std::byte* payload) {
  constexpr std::uint64_t kRotationStream = 1, kRoundingStream = 2;
  return {codec,
          exact::rule_of(codec),
          seed,
          derive(key_of(seed), kRotationStream),
          derive(key_of(seed), kRoundingStream),
          layout.elements,
          static_cast<unsigned>(layout.run),
          static_cast<unsigned>(std::countr_zero(layout.run)),
          {},
          false,
          payload,
          payload + layout.scales_at,
          CodeStream(codec.bits, payload + layout.codes_at),
          {}};
}

template <Memory kMemory, bool kTread>
void rotate_with(const RotateTask& task, Stream stream) {
  const std::uint64_t tiles = parts_of(task.elements, kTile);
  if (task.block <= kWarpTile)
    launch_over<RotateShared<false>>(rotate<kMemory, false, kTread>, tiles, kThreads, stream, task);
  else
    launch_over<RotateShared<true>>(rotate<kMemory, true, kTread>, tiles, kThreads, stream, task);
}

template <Memory kMemory>
void rotate_with(const RotateTask& task, Stream stream) {
  return task.codec.grid == Grid::tread ? rotate_with<kMemory, true>(task, stream)
                                        : rotate_with<kMemory, false>(task, stream);
}

template <Delivery kKind, bool kFloats>
void unrotate_with(const RotateTask& task, Stream stream) {
  const std::uint64_t tiles = parts_of(task.elements, kTile);
  if (task.block <= kWarpTile)
    launch_over<UnrotateShared<false>>(unrotate<kKind, kFloats, false>, tiles, kThreads, stream,
                                       task);
  else
    launch_over<UnrotateShared<true>>(unrotate<kKind, kFloats, true>, tiles, kThreads, stream,
                                      task);
}

}  // namespace

void device_rotate(const Quantise& codec, const QuantiseLayout& layout, const DeviceSource& source,
                   std::uint64_t seed, std::byte* payload, Stream stream) {
  if (layout.elements == 0) return device_put(seed, payload, stream);
  RotateTask task = task_of(codec, layout, seed, payload);
  task.source = source;
  task.is_aligned = is_aligned(source);
  switch (source.memory) {
    case Memory::none: return rotate_with<Memory::none>(task, stream);
    case Memory::feedback: return rotate_with<Memory::feedback>(task, stream);
    case Memory::difference: return rotate_with<Memory::difference>(task, stream);
  }
}

void device_unrotate(const Quantise& codec, const QuantiseLayout& layout, std::uint64_t seed,
                     const std::byte* payload, const DeviceSink& sink, Stream stream) {
  RotateTask task = task_of(codec, layout, seed, const_cast<std::byte*>(payload));
  task.sink = view_of(sink);
  if (sink.dtype != Dtype::f32 || !task.sink.is_aligned)
    return unrotate_with<Delivery::store, false>(task, stream);
  switch (sink.kind) {
    case Delivery::store: return unrotate_with<Delivery::store, true>(task, stream);
    case Delivery::add: return unrotate_with<Delivery::add, true>(task, stream);
    case Delivery::difference: return unrotate_with<Delivery::difference, true>(task, stream);
  }
}

}  // namespace laconic::kernel
