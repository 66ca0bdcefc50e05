// Quantise: bf16 without a memory, on the grid `tread` and of the usual kind (is_usual()). As
// quantise_teams.cu, but numbers have half the bytes: a thread takes twice as many, so that as much
// is under way and a group's scale is computed by fewer; and whole eights, whose codes need no
// neighbour. The kernels are right for shorter groups than their lanes hold, since a tensor's last
// is one; but only groups that fill them are given to them.
#include "laconic/codec/kernel/quantise_ladder.cuh"

namespace laconic::kernel {

namespace {

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

}  // namespace

bool quantise_by_eights(const QuantiseTask& task, Stream stream) {
  const auto with = [&](auto* kernel, unsigned lanes) {
    launch_over(kernel, parts_of(parts_of(task.groups, 32 / lanes), kWarps), kThreads, stream,
                task);
    return true;
  };
  if (task.source.memory != Memory::none || task.source.dtype != Dtype::bf16 ||
      !is_aligned_to(task.source.x, 16) || !is_usual(task) || task.codec.grid != Grid::tread)
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

}  // namespace laconic::kernel
