// Quantise: groups of 48 to 8192 elements, each by a team of lanes: a part of a warp, some warps or
// a block of threads, 16 elements or more for each lane. Lanes hold fours of neighbouring elements,
// so loads and stores of numbers are of 16 bytes side by side; codes are exchanged between
// neighbouring lanes, because only eight of them fill whole bytes whatever the bits. Teams of a
// warp, or of a block, exchange and wait together, so all their threads must go round equally
// often, also those whose group does not exist: its size is 0.
//
// How many fours a lane has and how many blocks a processor should hold (kResident) hang together:
// the numbers lie in registers, so more fours leave room for fewer blocks.
#include "laconic/codec/kernel/quantise_ladder.cuh"

namespace laconic::kernel {

namespace {

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

// --- which team for which group

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
bool quantise_on(const QuantiseTask& task, Stream stream) {
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

template <Memory kMemory>
bool quantise_by_teams_with(const QuantiseTask& task, Stream stream) {
  const std::uint64_t run = task.run;
  if ((run % 8 != 0 && task.groups > 1) || run < 48 || run > 8192) return false;
  if constexpr (kMemory == Memory::none)
    if (quantise_at_random(task, stream)) return true;
  if (task.codec.grid == Grid::tread) return quantise_on<kMemory, Way::tread>(task, stream);
  return quantise_on<kMemory, Way::ends>(task, stream);
}

}  // namespace

bool quantise_by_teams(const QuantiseTask& task, Stream stream) {
  switch (task.source.memory) {
    case Memory::none: return quantise_by_teams_with<Memory::none>(task, stream);
    case Memory::feedback: return quantise_by_teams_with<Memory::feedback>(task, stream);
    case Memory::difference: return quantise_by_teams_with<Memory::difference>(task, stream);
  }
  return false;
}

}  // namespace laconic::kernel
