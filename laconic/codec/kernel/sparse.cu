// The sparse codecs: which elements are kept, and their values in the order of indices.
//
// Each is one kernel whose blocks wait for each other. Warps own stretches of the tensor, one after
// the other, so an element's place among the kept ones is the number of those before its warp,
// which blocks find from counts, plus those before it in the warp, by ballots. Nothing depends on
// the order in which anything runs.
#include <cmath>

#include "laconic/codec/kernel/access.cuh"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarps = kThreads / 32;
constexpr unsigned kMaxBlocks = 1024;
constexpr unsigned kBins = 2048;
constexpr std::uint64_t kSmall = 1 << 16;  // not worth a sample
constexpr std::uint64_t kMaxSamples = 1 << 16;
constexpr std::uint32_t kNoKey = ~0u;

__device__ __forceinline__ unsigned lane_number() {
  return threadIdx.x % 32;
}
__device__ __forceinline__ unsigned lanes_below() {
  return (1u << lane_number()) - 1;
}

// --- where a warp's kept elements begin, among all

struct Counts {
  std::uint32_t above = 0, ties = 0;
};

struct PlaceShared {
  Counts of_warp[kWarps];
  Counts part[kWarps];
};

__device__ __forceinline__ Counts sum_of_warp(Counts mine) {
  return {__reduce_add_sync(kAllLanes, mine.above), __reduce_add_sync(kAllLanes, mine.ties)};
}

// Each warp has counted. Waits for the grid, and returns what the warps before this one have; `all`
// is what all have.
__device__ __forceinline__ Counts place_of(Counts warp, PlaceShared& shared, Counts* of_blocks,
                                           Counts& all) {
  const unsigned number = threadIdx.x / 32;
  __syncthreads();
  if (lane_number() == 0) shared.of_warp[number] = warp;
  __syncthreads();
  if (threadIdx.x == 0) {
    Counts sum;
    for (unsigned w = 0; w < kWarps; ++w) {
      sum.above += shared.of_warp[w].above;
      sum.ties += shared.of_warp[w].ties;
    }
    of_blocks[blockIdx.x] = sum;
  }
  grid_sync();
  Counts before, total;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads) {
    const Counts other = of_blocks[b];
    total.above += other.above;
    total.ties += other.ties;
    if (b >= blockIdx.x) continue;
    before.above += other.above;
    before.ties += other.ties;
  }
  before = sum_of_warp(before);
  total = sum_of_warp(total);
  if (lane_number() == 0) shared.part[number] = before;
  __syncthreads();
  Counts result;
  for (unsigned w = 0; w < kWarps; ++w) {
    result.above += shared.part[w].above;
    result.ties += shared.part[w].ties;
    if (w >= number) continue;
    result.above += shared.of_warp[w].above;
    result.ties += shared.of_warp[w].ties;
  }
  __syncthreads();
  if (lane_number() == 0) shared.part[number] = total;
  __syncthreads();
  all = {};
  for (unsigned w = 0; w < kWarps; ++w) {
    all.above += shared.part[w].above;
    all.ties += shared.part[w].ties;
  }
  return result;
}

// --- top_k

struct LargestShared {
  PlaceShared place;
  std::uint32_t bins[kBins];
  std::uint32_t found[2];
};

struct LargestControl {
  std::uint32_t bins[5][kBins];  // two digits of the sample, three of the answer
  Counts of_blocks[3][kMaxBlocks];
};

struct LargestTask {
  const float* x;
  std::uint32_t count, k;
  bool is_aligned;
  std::uint32_t samples, rank, room;  // samples 0: no guess
  LargestControl* control;
  std::uint32_t* candidate_indices;
  float* candidates;
  std::uint32_t* indices;
  float* values;
};

// What is searched: the tensor, or candidates of it.
struct Searched {
  const float* x;
  const std::uint32_t* indices;  // null: positions
  std::uint32_t count;
  bool is_aligned;
};

// use(position, keys of four, values) for this warp's stretch; lanes hold neighbouring fours.
template <class Use>
__device__ __forceinline__ void for_each_in_stretch(const Searched& in, const Use& use) {
  const std::uint32_t warps = gridDim.x * kWarps;
  const std::uint32_t steps = static_cast<std::uint32_t>(parts_of(parts_of(in.count, 128), warps));
  const std::uint64_t begin = std::uint64_t{blockIdx.x * kWarps + threadIdx.x / 32} * steps * 128;
#ifdef __CUDACC__
#pragma unroll 4
#endif
  for (std::uint32_t s = 0; s < steps; ++s) {
    const std::uint64_t i = begin + std::uint64_t{s} * 128 + lane_number() * 4;
    const std::uint64_t left = i < in.count ? in.count - i : 0;
    use(static_cast<std::uint32_t>(i), left < 4 ? static_cast<unsigned>(left) : 4,
        load_four(Dtype::f32, in.x, i, left, in.is_aligned));
  }
}

__device__ __forceinline__ Counts count_keys(const Searched& in, std::uint32_t least,
                                             std::uint32_t tie) {
  Counts mine;
  for_each_in_stretch(in, [&](std::uint32_t, unsigned left, const Four& four) {
    for (unsigned j = 0; j < 4; ++j) {
      const std::uint32_t key = exact::rank_key(four.at[j]);
      mine.above += j < left && key >= least ? 1 : 0;
      mine.ties += j < left && key == tie ? 1 : 0;
    }
  });
  return sum_of_warp(mine);
}

// Those at least `least`, and of those equal to `tie` the first max_ties, from `at` on.
__device__ __forceinline__ void take_keys(const Searched& in, std::uint32_t least,
                                          std::uint32_t tie, std::uint32_t max_ties, Counts at,
                                          std::uint32_t* indices, float* values) {
  for_each_in_stretch(in, [&](std::uint32_t i, unsigned left, const Four& four) {
    bool is_above[4], is_tie[4];
    unsigned above[4], ties[4], any = 0;
    for (unsigned j = 0; j < 4; ++j) {
      const std::uint32_t key = exact::rank_key(four.at[j]);
      is_above[j] = j < left && key >= least;
      is_tie[j] = j < left && key == tie;
      above[j] = __ballot_sync(kAllLanes, is_above[j]);
      ties[j] = __ballot_sync(kAllLanes, is_tie[j]);
      any |= above[j] | ties[j];
    }
    if (any == 0) return;
    Counts before = at;
    for (unsigned j = 0; j < 4; ++j) {
      before.above += static_cast<unsigned>(__popc(above[j] & lanes_below()));
      before.ties += static_cast<unsigned>(__popc(ties[j] & lanes_below()));
      at.above += static_cast<unsigned>(__popc(above[j]));
      at.ties += static_cast<unsigned>(__popc(ties[j]));
    }
    for (unsigned j = 0; j < 4; ++j) {
      if (is_above[j] || (is_tie[j] && before.ties < max_ties)) {
        const std::uint32_t to = before.above + (before.ties < max_ties ? before.ties : max_ties);
        indices[to] = in.indices == nullptr ? i + j : in.indices[i + j];
        values[to] = four.at[j];
      }
      before.above += is_above[j] ? 1 : 0;
      before.ties += is_tie[j] ? 1 : 0;
    }
  });
}

// The digit of the key that has rank - 1 larger ones, from all counts of a digit; takes those in
// larger bins off `rank`. All threads get the answer.
__device__ __forceinline__ std::uint32_t find_digit(const std::uint32_t* bins, std::uint32_t& rank,
                                                    LargestShared& shared) {
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr unsigned kEach = kBins / 32;
    const unsigned lane = threadIdx.x, first = kBins - (lane + 1) * kEach;  // lane 0: the largest
    std::uint32_t mine = 0;
    for (unsigned b = 0; b < kEach; ++b) mine += bins[first + b];
    std::uint32_t through = mine;
    for (unsigned by = 1; by < 32; by *= 2) {
      const std::uint32_t other = __shfl_up_sync(kAllLanes, through, by);
      if (lane >= by) through += other;
    }
    const std::uint32_t before = through - mine;
    if (rank > before && rank <= through) {
      std::uint32_t left = rank - before;
      unsigned bin = first + kEach - 1;
      for (; left > bins[bin]; --bin) left -= bins[bin];
      shared.found[0] = bin;
      shared.found[1] = left;
    }
  }
  __syncthreads();
  rank = shared.found[1];
  return shared.found[0];
}

__device__ __forceinline__ void clear_bins(LargestShared& shared) {
  __syncthreads();
  for (unsigned b = threadIdx.x; b < kBins; b += kThreads) shared.bins[b] = 0;
  __syncthreads();
}

__device__ __forceinline__ void add_bins(LargestShared& shared, std::uint32_t* bins) {
  __syncthreads();
  for (unsigned b = threadIdx.x; b < kBins; b += kThreads)
    if (shared.bins[b] != 0) atomicAdd(&bins[b], shared.bins[b]);
  grid_sync();
}

// A key that very likely has k at least as large and not many more; see codec/largest.cpp.
__device__ __forceinline__ std::uint32_t guess_key(const LargestTask& task, LargestShared& shared) {
  const std::uint64_t stretch = task.count / task.samples;
  std::uint32_t prefix = 0, rank = task.rank;
  for (int digit = 0; digit < 2; ++digit) {
    const int shift = digit == 0 ? 20 : 10, prefix_shift = digit == 0 ? 31 : 20;
    clear_bins(shared);
    for (std::uint64_t i = thread_number(); i < task.samples; i += thread_total()) {
      const std::uint64_t random = i * 0x9E3779B97F4A7C15u >> 32;
      const std::uint32_t key = exact::rank_key(task.x[i * stretch + (random * stretch >> 32)]);
      if (key >> prefix_shift == prefix)
        atomicAdd(&shared.bins[key >> shift & ((1u << (prefix_shift - shift)) - 1)], 1u);
    }
    add_bins(shared, task.control->bins[digit]);
    const std::uint32_t found = find_digit(task.control->bins[digit], rank, shared);
    prefix = prefix << (prefix_shift - shift) | found;
  }
  return prefix << 10;
}

__global__ void __launch_bounds__(kThreads, 2) find_largest(LargestTask task) {
  auto& shared = shared_memory<LargestShared>();
  LargestControl& control = *task.control;
  for (std::uint64_t b = thread_number(); b < 5 * kBins; b += thread_total())
    control.bins[b / kBins][b % kBins] = 0;
  grid_sync();
  Searched in{task.x, nullptr, task.count, task.is_aligned};
  if (task.samples > 0) {
    const std::uint32_t guess = guess_key(task, shared);
    Counts all;
    const Counts at =
        place_of(count_keys(in, guess, kNoKey), shared.place, control.of_blocks[0], all);
    if (all.above >= task.k && all.above <= task.room) {
      take_keys(in, guess, kNoKey, 0, at, task.candidate_indices, task.candidates);
      in = {task.candidates, task.candidate_indices, all.above, true};
      grid_sync();
    }
  }
  std::uint32_t prefix = 0, rank = task.k;
  for (int digit = 0; digit < 3; ++digit) {
    const int shift = 20 - 10 * digit, prefix_shift = digit == 0 ? 31 : 30 - 10 * digit;
    clear_bins(shared);
    for_each_in_stretch(in, [&](std::uint32_t, unsigned left, const Four& four) {
      for (unsigned j = 0; j < 4; ++j) {
        const std::uint32_t key = exact::rank_key(four.at[j]);
        if (j < left && key >> prefix_shift == prefix)
          atomicAdd(&shared.bins[key >> shift & ((1u << (prefix_shift - shift)) - 1)], 1u);
      }
    });
    add_bins(shared, control.bins[2 + digit]);
    const std::uint32_t found = find_digit(control.bins[2 + digit], rank, shared);
    prefix = prefix << (prefix_shift - shift) | found;
  }
  Counts all;
  const Counts at =
      place_of(count_keys(in, prefix + 1, prefix), shared.place, control.of_blocks[1], all);
  take_keys(in, prefix + 1, prefix, rank, at, task.indices, task.values);
}

__global__ void __launch_bounds__(kThreads)
    scatter(const std::uint32_t* indices, const float* values, std::uint64_t k, float* out) {
  for (std::uint64_t j = thread_number(); j < k; j += thread_total()) out[indices[j]] = values[j];
}

// --- random_k

struct ChoiceControl {
  std::uint32_t fresh[4];
  Counts of_blocks[kMaxBlocks];
};

struct ChoiceTask {
  Key key;
  std::uint32_t count, k;
  ChoiceControl* control;
  std::uint32_t* bits;  // ceil(count / 32)
  ChoiceValues values;
  DeviceSource source;  // gather: from here to `values`
  std::uint64_t seed;
  std::byte* head;  // gather: where the seed goes
  float* out;       // scatter: from `values` to here
  bool is_aligned;
};

struct ChoiceShared {
  PlaceShared place;
  std::uint32_t fresh;
};

constexpr std::uint32_t kFewDraws = 8 * kThreads;  // a block alone is done sooner than all agree

// Sets the bits of draws [next, end), shared among `threads` of which this is number `thread`.
// Returns how many this thread has set first.
__device__ __forceinline__ std::uint32_t set_bits(const ChoiceTask& task, std::uint64_t next,
                                                  std::uint64_t end, std::uint64_t thread,
                                                  std::uint64_t threads) {
  std::uint32_t fresh = 0;
  for (std::uint64_t block = next / 4 + thread; 4 * block < end; block += threads) {
    const exact::FourWords words = exact::philox_words(task.key, block);
    // All four are under way before the first answer is looked at.
    std::uint32_t bits[4], others[4];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned j = 0; j < 4; ++j) {
      const auto index = static_cast<std::uint32_t>(std::uint64_t{words.at[j]} * task.count >> 32);
      bits[j] = 1u << index % 32;
      others[j] = bits[j];
      if (4 * block + j >= next && 4 * block + j < end)
        others[j] = atomicOr(&task.bits[index / 32], bits[j]);
    }
    for (unsigned j = 0; j < 4; ++j) fresh += (others[j] & bits[j]) == 0 ? 1 : 0;
  }
  return fresh;
}

// Adds up over the block; all threads get the sum.
__device__ __forceinline__ std::uint32_t sum_of_block(std::uint32_t mine, std::uint32_t& shared) {
  __syncthreads();
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  mine = __reduce_add_sync(kAllLanes, mine);
  if (lane_number() == 0 && mine > 0) atomicAdd(&shared, mine);
  __syncthreads();
  return shared;
}

// Sets the bits of the first draws until `wanted` are different. A round never draws more than are
// still wanted, so those set are the first ones, however rounds are cut. The last rounds, of few
// draws, are one block's.
__device__ __forceinline__ void draw_bits(const ChoiceTask& task, std::uint32_t wanted,
                                          ChoiceShared& shared) {
  std::uint64_t next = 0;
  for (unsigned round = 0; wanted > kFewDraws; ++round) {
    if (thread_number() == 0) task.control->fresh[(round + 1) % 3] = 0;
    const std::uint64_t end = next + wanted;
    const std::uint32_t fresh =
        sum_of_block(set_bits(task, next, end, thread_number(), thread_total()), shared.fresh);
    if (threadIdx.x == 0 && fresh > 0) atomicAdd(&task.control->fresh[round % 3], fresh);
    grid_sync();
    next = end;
    wanted -= task.control->fresh[round % 3];
  }
  while (blockIdx.x == 0 && wanted > 0) {
    const std::uint64_t end = next + wanted;
    wanted -= sum_of_block(set_bits(task, next, end, threadIdx.x, kThreads), shared.fresh);
    next = end;
  }
  grid_sync();
}

// The words of a warp, one after the other, from number `begin` on for this lane; where the values
// of the first are.
struct Stretch {
  std::uint64_t begin;
  std::uint32_t steps, at;
};

// The bits of the kept elements among 32.
__device__ __forceinline__ std::uint32_t kept_bits(const ChoiceTask& task, std::uint64_t w) {
  const auto words = static_cast<std::uint32_t>(parts_of(task.count, 32));
  if (w >= words) return 0;
  const std::uint32_t bits = task.k <= task.count - task.k ? task.bits[w] : ~task.bits[w];
  return w + 1 == words && task.count % 32 != 0 ? bits & ((1u << task.count % 32) - 1) : bits;
}

// Draws, and counts what is kept before this warp's words.
__device__ __forceinline__ Stretch choose(const ChoiceTask& task, ChoiceShared& shared) {
  const auto words = static_cast<std::uint32_t>(parts_of(task.count, 32));
  for (std::uint64_t w = thread_number(); w < words; w += thread_total()) task.bits[w] = 0;
  if (thread_number() < 4) task.control->fresh[thread_number()] = 0;
  grid_sync();
  draw_bits(task, task.k <= task.count - task.k ? task.k : task.count - task.k, shared);
  const std::uint32_t warps = gridDim.x * kWarps;
  Stretch stretch;
  stretch.steps = static_cast<std::uint32_t>(parts_of(parts_of(words, 32), warps));
  stretch.begin =
      std::uint64_t{blockIdx.x * kWarps + threadIdx.x / 32} * stretch.steps * 32 + lane_number();
  Counts mine;
#ifdef __CUDACC__
#pragma unroll 4
#endif
  for (std::uint32_t s = 0; s < stretch.steps; ++s)
    mine.above +=
        static_cast<unsigned>(__popc(kept_bits(task, stretch.begin + std::uint64_t{s} * 32)));
  Counts all;
  stretch.at = place_of(sum_of_warp(mine), shared.place, task.control->of_blocks, all).above;
  return stretch;
}

// Where the first value of this lane's word is; moves `at` behind those of the warp's words.
__device__ __forceinline__ std::uint32_t place_in_warp(std::uint32_t bits, std::uint32_t& at) {
  const auto count = static_cast<std::uint32_t>(__popc(bits));
  std::uint32_t through = count;
  for (unsigned by = 1; by < 32; by *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, through, by);
    if (lane_number() >= by) through += other;
  }
  const std::uint32_t first = at + through - count;
  at += __shfl_sync(kAllLanes, through, 31);
  return first;
}

// Elements lie apart, and each takes as long as memory does: so four words are walked at a time.
__global__ void __launch_bounds__(kThreads, 2) gather_choice(ChoiceTask task) {
  constexpr unsigned kAtOnce = 4;
  Stretch stretch = choose(task, shared_memory<ChoiceShared>());
  if (thread_number() < sizeof(task.seed) && task.head != nullptr)
    task.head[thread_number()] = static_cast<std::byte>(task.seed >> 8 * thread_number());
  for (std::uint32_t s = 0; s < stretch.steps; s += kAtOnce) {
    std::uint32_t bits[kAtOnce], to[kAtOnce], any = 0;
    const std::uint64_t w = stretch.begin + std::uint64_t{s} * 32;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned q = 0; q < kAtOnce; ++q)
      bits[q] = s + q < stretch.steps ? kept_bits(task, w + q * 32) : 0;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned q = 0; q < kAtOnce; ++q) {
      to[q] = place_in_warp(bits[q], stretch.at);
      any |= bits[q];
    }
    while (any != 0) {
      float value[kAtOnce];
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned q = 0; q < kAtOnce; ++q)
        if (bits[q] != 0)
          value[q] = load_one(task.source.dtype, task.source.x,
                              32 * (w + q * 32) + static_cast<unsigned>(__ffs(bits[q])) - 1);
      any = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned q = 0; q < kAtOnce; ++q) {
        if (bits[q] == 0) continue;
        store_narrow(task.values.dtype, task.values.at, to[q]++, value[q]);
        bits[q] &= bits[q] - 1;
        any |= bits[q];
      }
    }
  }
}

// Zeros and values are written together, in order: lanes take fours of elements side by side, so
// each asks the lane whose word they are of.
__global__ void __launch_bounds__(kThreads, 2) scatter_choice(ChoiceTask task) {
  Stretch stretch = choose(task, shared_memory<ChoiceShared>());
  const unsigned lane = lane_number(), shift = lane % 8 * 4;
  std::uint32_t bits = kept_bits(task, stretch.begin);
  for (std::uint32_t s = 0; s < stretch.steps; ++s) {
    const std::uint64_t w = stretch.begin + std::uint64_t{s} * 32;
    const std::uint32_t next = s + 1 < stretch.steps ? kept_bits(task, w + 32) : 0;
    const std::uint32_t first = place_in_warp(bits, stretch.at);
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned m = 0; m < 8; ++m) {
      const unsigned owner = 4 * m + lane / 8;
      const std::uint32_t word = __shfl_sync(kAllLanes, bits, owner);
      std::uint32_t from = __shfl_sync(kAllLanes, first, owner);
      from += static_cast<unsigned>(__popc(word & ((1u << shift) - 1)));
      Four four = {{0, 0, 0, 0}};
      if ((word >> shift & 15) != 0)
        for (unsigned j = 0; j < 4; ++j)
          if ((word >> shift >> j & 1) != 0) {
            four.at[j] = exact::canonical(load_one(task.values.dtype, task.values.at, from++));
            if (task.values.is_scaled)
              four.at[j] = exact::canonical(four.at[j] * task.values.factor);
          }
      const std::uint64_t i = 32 * (w - lane + owner) + shift;
      if (i < task.count) store_floats(task.out, i, four, task.count - i, task.is_aligned);
    }
    bits = next;
  }
}

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// How many samples, and what follows from them.
LargestTask plan_search(std::uint64_t count, std::uint64_t k) {
  LargestTask task{};
  task.count = static_cast<std::uint32_t>(count);
  task.k = static_cast<std::uint32_t>(k);
  if (count < kSmall) return task;
  const std::uint64_t samples = count / 16 < kMaxSamples ? count / 16 : kMaxSamples;
  const double expected =
      static_cast<double>(k) / static_cast<double>(count) * static_cast<double>(samples);
  const auto rank = static_cast<std::uint64_t>(expected + 4 * std::sqrt(expected) + 8);
  if (rank > samples / 4) return task;
  task.samples = static_cast<std::uint32_t>(samples);
  task.rank = static_cast<std::uint32_t>(rank);
  task.room = static_cast<std::uint32_t>(rank * (count / samples) * 3 / 2 + 4096);
  return task;
}

void run_choice(void (*kernel)(ChoiceTask), ChoiceTask task, std::uint64_t count, std::uint64_t k,
                std::uint64_t seed, std::byte* scratch, Stream stream) {
  constexpr std::uint64_t kChoiceStream = 3;  // docs/wire-format.md, "Random numbers"
  task.key = derive(key_of(seed), kChoiceStream);
  task.count = static_cast<std::uint32_t>(count);
  task.k = static_cast<std::uint32_t>(k);
  task.control = reinterpret_cast<ChoiceControl*>(scratch);
  task.bits = reinterpret_cast<std::uint32_t*>(scratch + rounded_up(sizeof(ChoiceControl)));
  const std::uint64_t blocks = parts_of(parts_of(count, 32), kThreads);
  launch_together<ChoiceShared>(kernel, blocks < kMaxBlocks ? blocks : kMaxBlocks, kThreads, stream,
                                task);
}

}  // namespace

std::uint64_t largest_scratch_bytes(std::uint64_t count, std::uint64_t k) {
  return rounded_up(sizeof(LargestControl)) + 2 * rounded_up(4 * plan_search(count, k).room);
}

void device_largest(const float* x, std::uint64_t count, std::uint64_t k, std::uint32_t* indices,
                    float* values, std::byte* scratch, Stream stream) {
  LargestTask task = plan_search(count, k);
  task.x = x;
  task.is_aligned = is_aligned_to(x, 16);
  task.control = reinterpret_cast<LargestControl*>(scratch);
  scratch += rounded_up(sizeof(LargestControl));
  task.candidate_indices = reinterpret_cast<std::uint32_t*>(scratch);
  task.candidates = reinterpret_cast<float*>(scratch + rounded_up(4 * task.room));
  task.indices = indices;
  task.values = values;
  const std::uint64_t blocks = parts_of(count, 4 * kThreads);
  launch_together<LargestShared>(find_largest, blocks < kMaxBlocks ? blocks : kMaxBlocks, kThreads,
                                 stream, task);
}

void device_scatter(const std::uint32_t* indices, const float* values, std::uint64_t k, float* out,
                    std::uint64_t count, Stream stream) {
  device_clear(out, count * sizeof(float), stream);
  launch_over(scatter, parts_of(k, kThreads), kThreads, stream, indices, values, k, out);
}

std::uint64_t choice_scratch_bytes(std::uint64_t count) {
  return rounded_up(sizeof(ChoiceControl)) + rounded_up(4 * parts_of(count, 32));
}

void device_gather_choice(const DeviceSource& source, std::uint64_t count, std::uint64_t k,
                          std::uint64_t seed, std::byte* head, const ChoiceValues& values,
                          std::byte* scratch, Stream stream) {
  ChoiceTask task{};
  task.source = source;
  task.seed = seed;
  task.head = head;
  task.values = values;
  run_choice(gather_choice, task, count, k, seed, scratch, stream);
}

void device_scatter_choice(const ChoiceValues& values, std::uint64_t count, std::uint64_t k,
                           std::uint64_t seed, float* out, std::byte* scratch, Stream stream) {
  ChoiceTask task{};
  task.values = values;
  task.out = out;
  task.is_aligned = is_aligned_to(out, 16);
  run_choice(scatter_choice, task, count, k, seed, scratch, stream);
}

}  // namespace laconic::kernel
