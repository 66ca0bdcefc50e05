// Quantise: channels where all is aligned and rows are whole eights. One kernel that reads
// everything twice, because a scale is known only when all of its column was seen. A block of
// threads has a strip of columns, a thread four of them, and all blocks move down the rows side by
// side. Then they wait for each other and make codes on the way back, so that what was read last,
// and is still in the cache, comes first.
//
// So it must be started by launch_together(), and no block may return before the last grid_sync(),
// even one that has no strip.
#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

namespace {

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
void quantise_channels_with(const QuantiseTask& task, Extremes* extremes, Stream stream) {
  task.source.dtype == Dtype::f32 ? quantise_channels<kMemory, Dtype::f32>(task, extremes, stream)
                                  : quantise_channels<kMemory, Dtype::bf16>(task, extremes, stream);
}

}  // namespace

bool quantise_by_strips(const QuantiseTask& task, Extremes* extremes, Stream stream) {
  const bool is_for_strips =
      task.codec.group == ScaleGroup::channel && task.run % 8 == 0 && task.is_aligned &&
      task.elements >> 33 == 0 &&
      (task.source.dtype == Dtype::f32 ||
       (task.source.dtype == Dtype::bf16 && is_aligned_to(task.source.x, 16)));
  if (!is_for_strips) return false;
  switch (task.source.memory) {
    case Memory::none: quantise_channels_with<Memory::none>(task, extremes, stream); break;
    case Memory::feedback: quantise_channels_with<Memory::feedback>(task, extremes, stream); break;
    case Memory::difference:
      quantise_channels_with<Memory::difference>(task, extremes, stream);
      break;
  }
  return true;
}

}  // namespace laconic::kernel
