// Quantise back, not rotated: codes to numbers, in two ways with the same results. Where all is
// aligned and groups, or rows of channels, are whole units (dequantise_wide) a lane asks for
// everything that it needs before it uses anything. Elsewhere (dequantise) lanes read codes for
// their neighbours too and exchange them, so all lanes of a warp must come to load_pair().
//
// Scales come from a message, so they may be anything. The fast way looks at them instead of at
// numbers: where a scale is finite no number can be NaN.
#include <bit>

#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

namespace {

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

}  // namespace

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
