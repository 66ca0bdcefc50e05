// Sign. Magnitudes are summed as the format says: pieces of 4096, in 16 chains each, then a tree
// over the chains, then the pieces as doubles in order. Four threads take a piece and hold four
// chains each, so they read rows of 16 elements; their signs come along.
#include "laconic/codec/kernel/access.cuh"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 128;
constexpr std::uint64_t kPiece = 4096;
constexpr unsigned kChains = 16;

struct SignTask {
  DeviceSource source;
  std::uint64_t count, block, blocks, pieces;  // pieces: of a block
  float* sums;                                 // of pieces; unused when a block has one
  std::byte* scales;
  std::uint8_t* signs;
};

// What is sent, as load_four() and load_one().
template <Memory kMemory>
__device__ __forceinline__ Four sent_four(const SignTask& task, std::uint64_t i,
                                          std::uint64_t count) {
  const DeviceSource& source = task.source;
  Four x = load_four(source.dtype, source.x, i, count, true);
  if constexpr (kMemory != Memory::none) {
    const Four before = load_four(Dtype::f32, source.before, i, count, true);
    for (int j = 0; j < 4; ++j) x.at[j] = combined_exactly(kMemory, x.at[j], before.at[j]);
  }
  return x;
}
template <Memory kMemory>
__device__ __forceinline__ float sent_one(const SignTask& task, std::uint64_t i) {
  const float x = load_one(task.source.dtype, task.source.x, i);
  return kMemory == Memory::none ? x : combined_exactly(kMemory, x, task.source.before[i]);
}

__device__ __forceinline__ void store_scale(const SignTask& task, std::uint64_t block, double total,
                                            std::uint64_t count) {
  reinterpret_cast<float*>(task.scales)[block] = exact::mean_magnitude(total, count);
}

// The sum of 16 chains that four neighbouring threads hold, by the format's tree: j and j + 8, then
// j + 4, j + 2, j + 1. Thread q has the chains 4 q ... 4 q + 3.
__device__ __forceinline__ float tree_sum(const Four& chains) {
  Four sum = chains;
  for (int j = 0; j < 4; ++j) sum.at[j] = sum.at[j] + __shfl_xor_sync(kAllLanes, sum.at[j], 2);
  for (int j = 0; j < 4; ++j) sum.at[j] = sum.at[j] + __shfl_xor_sync(kAllLanes, sum.at[j], 1);
  return (sum.at[0] + sum.at[2]) + (sum.at[1] + sum.at[3]);
}

// Blocks of a multiple of 16 elements that begin aligned.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) sign_aligned(SignTask task) {
  const unsigned q = threadIdx.x % 4;
  const std::uint64_t total = task.blocks * task.pieces, teams = thread_total() / 4;
  // All lanes of a warp go round equally often, because they exchange.
  const std::uint64_t rounds = parts_of(total, teams);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t w = round * teams + thread_number() / 4;
    const std::uint64_t block = w / task.pieces, piece = w % task.pieces;
    std::uint64_t begin = 0, size = 0;
    if (w < total) {
      begin = block * task.block + piece * kPiece;
      std::uint64_t end = (block + 1) * task.block;
      if (end > task.count) end = task.count;
      size = end > begin ? end - begin : 0;
      if (size > kPiece) size = kPiece;
    }
    const std::uint64_t most = task.block < kPiece ? task.block : kPiece;
    Four sums = {{0, 0, 0, 0}};
    for (std::uint64_t row = 0; row < most; row += 8 * kChains) {
      Four x[8];
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned k = 0; k < 8; ++k) {
        const std::uint64_t at = row + k * kChains + 4 * q;
        x[k] = sent_four<kMemory>(task, begin + at, at < size ? size - at : 0);
      }
      std::uint32_t mine = 0;  // the signs of rows 2 q and 2 q + 1
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned k = 0; k < 8; ++k) {
        std::uint32_t bits = 0;
        for (int j = 0; j < 4; ++j) {
          const std::uint32_t all = exact::bits_of(x[k].at[j]);
          sums.at[j] = sums.at[j] + exact::float_of(all & ~exact::kSignBit);
          bits |= (all >> 31) << (4 * q + j);
        }
        bits |= __shfl_xor_sync(kAllLanes, bits, 1);
        bits |= __shfl_xor_sync(kAllLanes, bits, 2);
        if (k / 2 == q) mine |= bits << k % 2 * 16;
      }
      const std::uint64_t at = row + q * 2 * kChains;
      if (at < size) {
        const std::uint64_t left = size - at;
        std::uint8_t* to = task.signs + (begin + at) / 8;
        if (left >= 32 && (reinterpret_cast<std::uintptr_t>(to) & 3) == 0) {
          *reinterpret_cast<std::uint32_t*>(to) = mine;
        } else {
          const unsigned bytes = left >= 32 ? 4 : static_cast<unsigned>((left + 7) / 8);
          for (unsigned b = 0; b < bytes; ++b) to[b] = static_cast<std::uint8_t>(mine >> 8 * b);
        }
      }
    }
    const float sum = tree_sum(sums);
    if (q != 0 || size == 0) continue;
    if (task.pieces == 1)
      store_scale(task, block, static_cast<double>(sum), size);
    else
      task.sums[w] = sum;
  }
}

// The same with a thread for each chain, where pieces are long and so not enough of them.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) sign_long(SignTask task) {
  const unsigned chain = threadIdx.x % kChains;
  const std::uint64_t total = task.blocks * task.pieces, teams = thread_total() / kChains;
  const std::uint64_t rounds = parts_of(total, teams);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t w = round * teams + thread_number() / kChains;
    const std::uint64_t block = w / task.pieces;
    const std::uint64_t begin = block * task.block + w % task.pieces * kPiece;
    std::uint64_t end = (block + 1) * task.block;
    if (end > task.count) end = task.count;
    if (end > begin + kPiece) end = begin + kPiece;
    const unsigned size = w < total && begin < end ? static_cast<unsigned>(end - begin) : 0;
    float sum = 0;
    for (unsigned row = 0; row < kPiece; row += kChains * kChains) {
      float x[kChains], before[kChains];
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned k = 0; k < kChains; ++k) {
        const unsigned at = row + k * kChains + chain;
        x[k] = at < size ? load_one(task.source.dtype, task.source.x, begin + at) : 0.0f;
        if constexpr (kMemory != Memory::none)
          before[k] = at < size ? task.source.before[begin + at] : 0.0f;
      }
      std::uint32_t mine = 0;  // the signs of row number `chain`
#ifdef __CUDACC__
#pragma unroll
#endif
      for (unsigned k = 0; k < kChains; ++k) {
        if constexpr (kMemory != Memory::none) x[k] = combined_exactly(kMemory, x[k], before[k]);
        const std::uint32_t all = exact::bits_of(x[k]);
        sum = sum + exact::float_of(all & ~exact::kSignBit);
        const std::uint32_t both = __ballot_sync(kAllLanes, all >> 31 != 0);
        if (k == chain) mine = threadIdx.x % 32 < kChains ? both & 0xFFFF : both >> 16;
      }
      const unsigned at = row + chain * kChains;
      if (at >= size) continue;
      std::uint8_t* to = task.signs + (begin + at) / 8;
      to[0] = static_cast<std::uint8_t>(mine);
      if (size - at > 8) to[1] = static_cast<std::uint8_t>(mine >> 8);
    }
    for (unsigned by = kChains / 2; by > 0; by /= 2)
      sum = sum + __shfl_xor_sync(kAllLanes, sum, by);
    if (chain != 0 || size == 0) continue;
    if (task.pieces == 1)
      store_scale(task, block, static_cast<double>(sum), size);
    else
      task.sums[w] = sum;
  }
}

// Any blocks: a chain for each thread, half a warp for each piece.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) sign_sums(SignTask task) {
  const unsigned lane = threadIdx.x % kChains;
  const std::uint64_t total = task.blocks * task.pieces, teams = thread_total() / kChains;
  const std::uint64_t rounds = parts_of(total, teams);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t w = round * teams + thread_number() / kChains;
    const std::uint64_t block = w / task.pieces;
    const std::uint64_t begin = block * task.block + w % task.pieces * kPiece;
    std::uint64_t end = (block + 1) * task.block;
    if (end > task.count) end = task.count;
    if (end > begin + kPiece) end = begin + kPiece;
    float sum = 0;
    if (w < total)
      for (std::uint64_t i = begin + lane; i < end; i += kChains)
        sum = sum + exact::float_of(exact::bits_of(sent_one<kMemory>(task, i)) & ~exact::kSignBit);
    for (unsigned by = kChains / 2; by > 0; by /= 2)
      sum = sum + __shfl_xor_sync(kAllLanes, sum, by);
    if (lane != 0 || w >= total || begin >= end) continue;
    if (task.pieces == 1)
      store_scale(task, block, static_cast<double>(sum), end - begin);
    else
      task.sums[w] = sum;
  }
}

template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) sign_bits(SignTask task) {
  for (std::uint64_t e = thread_number(); 8 * e < task.count; e += thread_total()) {
    unsigned bits = 0;
    for (unsigned j = 0; j < 8; ++j)
      if (8 * e + j < task.count)
        bits |= exact::bits_of(sent_one<kMemory>(task, 8 * e + j)) >> 31 << j;
    task.signs[e] = static_cast<std::uint8_t>(bits);
  }
}

// The pieces of a block, one after the other.
__global__ void __launch_bounds__(kThreads) sign_scales(SignTask task) {
  for (std::uint64_t block = thread_number(); block < task.blocks; block += thread_total()) {
    const std::uint64_t begin = block * task.block;
    const std::uint64_t count = task.count - begin < task.block ? task.count - begin : task.block;
    double total = 0;
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (std::uint64_t p = 0; p < parts_of(count, kPiece); ++p)
      total = total + static_cast<double>(task.sums[block * task.pieces + p]);
    store_scale(task, block, total, count);
  }
}

// A four where all is there and its type is known, or any.
template <Dtype kDtype>
__device__ __forceinline__ Four load_known(const void* x, std::uint64_t i) {
  Four four;
  load_wide<kDtype>(x, i, four.at);
  return four;
}

// Stores what is remembered of elements i ... i + 3, if they exist, and says whether it is unsound.
template <Memory kMemory>
__device__ __forceinline__ bool remember_four(const SignTask& task, std::uint64_t i, float scale,
                                              Four sent, const Four& before) {
  for (int j = 0; j < 4; ++j) {
    // Where this is NaN, and its sign any, so is the scale.
    const float received =
        exact::float_of(exact::bits_of(scale) ^ (exact::bits_of(sent.at[j]) & exact::kSignBit));
    sent.at[j] = kMemory == Memory::feedback ? sent.at[j] - received : before.at[j] + received;
  }
  const bool is_unsound = has_unsound(sent.at);
  if (is_unsound) [[unlikely]]
    settle_nans(sent.at);
  store_floats(task.source.after, i, sent, task.count - i, true);
  return is_unsound;
}

// What is remembered, once the scales are known. A thread has 16 elements under way.
template <Memory kMemory, Dtype kDtype>
__global__ void __launch_bounds__(kThreads)
    sign_remember(SignTask task, Divider blocks, std::uint64_t fours) {
  constexpr unsigned kSteps = 4;
  const auto* scales = reinterpret_cast<const float*>(task.scales);
  bool is_unsound = false;
  for (std::uint64_t tile = blockIdx.x; tile * kSteps * kThreads < fours; tile += gridDim.x) {
    Four x[kSteps], before[kSteps];
    float scale[kSteps];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const std::uint64_t f = (tile * kSteps + s) * kThreads + threadIdx.x;
      if (f >= fours) continue;
      x[s] = load_known<kDtype>(task.source.x, 4 * f);
      before[s] = load_known<Dtype::f32>(task.source.before, 4 * f);
      scale[s] = scales[blocks.quotient(static_cast<std::uint32_t>(f))];
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kSteps; ++s) {
      const std::uint64_t f = (tile * kSteps + s) * kThreads + threadIdx.x;
      if (f >= fours) continue;
      for (int j = 0; j < 4; ++j) x[s].at[j] = combined(kMemory, x[s].at[j], before[s].at[j]);
      is_unsound |= remember_four<kMemory>(task, 4 * f, scale[s], x[s], before[s]);
    }
  }
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
}

// The same from element `first` on, of any kind.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads) sign_remember_any(SignTask task, std::uint64_t first) {
  bool is_unsound = false;
  for (std::uint64_t i = first + thread_number(); i < task.count; i += thread_total()) {
    const float before = task.source.before[i], sent = sent_one<kMemory>(task, i);
    const float scale = reinterpret_cast<const float*>(task.scales)[i / task.block];
    const float after = remembered(
        kMemory, sent,
        exact::float_of(exact::bits_of(scale) ^ (exact::bits_of(sent) & exact::kSignBit)), before);
    task.source.after[i] = after;
    is_unsound |= !exact::is_finite(after);
  }
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
}

struct UnsignTask {
  const float* scales;
  const std::uint8_t* signs;
  std::uint64_t count, block;
  SinkView sink;
};

__global__ void __launch_bounds__(kThreads) unsign(UnsignTask task) {
  const std::uint64_t fours = parts_of(task.count, 4);
  for (std::uint64_t f = thread_number(); f < fours; f += thread_total()) {
    const std::uint64_t i = 4 * f, left = task.count - i;
    const unsigned bits = task.signs[i / 8] >> i % 8;
    const std::uint64_t block =
        (i | task.block) >> 32 == 0
            ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(task.block)
            : i / task.block;
    Four four = {{0, 0, 0, 0}};
    for (unsigned j = 0; j < 4; ++j)
      if (j < left) {
        const float scale = task.scales[task.block % 4 == 0 ? block : (i + j) / task.block];
        four.at[j] = exact::float_of(exact::bits_of(scale) ^ (bits >> j & 1) << 31);
      }
    deliver_four(task.sink, i, four, left);
  }
}

// --- with a memory in one pass: blocks of a power of two from 256 to 4096

constexpr unsigned kTileThreads = 256;
constexpr unsigned kTileSteps = kPiece / kTileThreads / 4;

// Magnitudes on their way from the threads that hold elements to those that add up a chain each.
// Blocks are 16 apart more than they are long, so that two in a warp have different banks.
struct TileShared {
  float magnitudes[kPiece + 16 * 16];
  float scales[16];
};

// Blocks of threads that a processor should hold: while the chains of one are added up, and its
// other threads wait, only others load.
template <Memory kMemory>
inline constexpr int kTileResident = kMemory == Memory::feedback ? 5 : 4;

// The sum of every 16th of `size` numbers, a multiple of 128. Eight are loaded before the first is
// added: all other threads wait for this, and shared memory answers late.
__device__ __forceinline__ float chain_sum(const float* from, unsigned size) {
  constexpr unsigned kAtOnce = 8;
  float sum = 0;
  for (unsigned at = 0; at < size; at += kAtOnce * kChains) {
    float x[kAtOnce];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned k = 0; k < kAtOnce; ++k) x[k] = from[at + k * kChains];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned k = 0; k < kAtOnce; ++k) sum = sum + x[k];
  }
  return sum;
}

// A block of threads takes 4096 elements and keeps them until their scales are known.
template <Memory kMemory, Dtype kDtype>
__global__ void __launch_bounds__(kTileThreads, kTileResident<kMemory>)
    sign_tiles(SignTask task, unsigned shift) {
  auto& shared = shared_memory<TileShared>();
  const unsigned t = threadIdx.x, chains = kChains * static_cast<unsigned>(kPiece >> shift);
  bool is_unsound = false;
  for (std::uint64_t tile = blockIdx.x; tile * kPiece < task.count; tile += gridDim.x) {
    const std::uint64_t first = tile * kPiece;
    Four x[kTileSteps], before[kTileSteps];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kTileSteps; ++s) {
      const std::uint64_t i = first + (kTileThreads * s + t) * 4;
      if (i + 4 <= task.count) {
        x[s] = load_known<kDtype>(task.source.x, i);
        before[s] = load_known<Dtype::f32>(task.source.before, i);
      } else {
        const std::uint64_t left = i < task.count ? task.count - i : 0;
        x[s] = load_four(kDtype, task.source.x, i, left, false);
        before[s] = load_four(Dtype::f32, task.source.before, i, left, false);
      }
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kTileSteps; ++s) {
      const unsigned at = (kTileThreads * s + t) * 4;
      std::uint32_t bits = 0;
      Four magnitudes;
      for (int j = 0; j < 4; ++j) {
        // A NaN of 16 bits has no sign.
        if constexpr (kDtype != Dtype::f32) x[s].at[j] = exact::canonical(x[s].at[j]);
        x[s].at[j] = combined_exactly(kMemory, x[s].at[j], before[s].at[j]);
        const std::uint32_t all = exact::bits_of(x[s].at[j]);
        bits |= all >> 31 << j;
        magnitudes.at[j] = exact::float_of(all & ~exact::kSignBit);
      }
      store_wide<Dtype::f32>(shared.magnitudes, at + (at >> shift) * 16, magnitudes.at);
      bits |= __shfl_xor_sync(kAllLanes, bits, 1) << 4;
      if (t % 2 == 0 && first + at < task.count)
        task.signs[(first + at) / 8] = static_cast<std::uint8_t>(bits);
    }
    __syncthreads();
    if (t / 32 * 32 < chains) {
      const unsigned block = t / kChains;
      const float* from = shared.magnitudes + (block << shift) + block * 16 + t % kChains;
      float sum = t < chains ? chain_sum(from, 1u << shift) : 0.0f;
      for (unsigned by = kChains / 2; by > 0; by /= 2)
        sum = sum + __shfl_xor_sync(kAllLanes, sum, by);
      const std::uint64_t begin = first + (block << shift);
      if (t % kChains == 0 && t < chains && begin < task.count) {
        const std::uint64_t left = task.count - begin;
        const float scale =
            exact::mean_magnitude(static_cast<double>(sum), left < task.block ? left : task.block);
        reinterpret_cast<float*>(task.scales)[begin >> shift] = scale;
        shared.scales[block] = scale;
      }
    }
    __syncthreads();
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned s = 0; s < kTileSteps; ++s) {
      const unsigned at = (kTileThreads * s + t) * 4;
      const std::uint64_t i = first + at;
      if (i >= task.count) continue;
      is_unsound |= remember_four<kMemory>(task, i, shared.scales[at >> shift], x[s], before[s]);
    }
  }
  if (is_unsound && task.source.is_unsound != nullptr) *task.source.is_unsound = 1;
}

// Where the signs are those of whole units and all is aligned.
struct WideUnsign {
  UnsignTask task;
  Divider blocks;  // of fours
};

template <Delivery kKind, Dtype kDtype>
__global__ void __launch_bounds__(kThreads) unsign_wide(WideUnsign wide) {
  constexpr int kUnit = kKind == Delivery::difference ? 4 : kWideCount<kDtype>;
  constexpr int kUnits = 16 / kUnit;
  const UnsignTask& task = wide.task;
  const std::uint64_t units = task.count / kUnit;
  for (std::uint64_t tile = blockIdx.x; tile * kUnits * kThreads < units; tile += gridDim.x) {
    float old[kUnits][kUnit];
    std::uint32_t signs[kUnits], scales[kUnits];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kUnits; ++s) {
      const std::uint64_t u = (tile * kUnits + s) * kThreads + threadIdx.x;
      if (u >= units) continue;
      prepare_wide<kKind, kDtype>(task.sink, u * kUnit, old[s]);
      signs[s] = task.signs[kUnit == 4 ? u / 2 : u];
      scales[s] = exact::bits_of(
          task.scales[wide.blocks.quotient(static_cast<std::uint32_t>(u * (kUnit / 4)))]);
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < kUnits; ++s) {
      const std::uint64_t u = (tile * kUnits + s) * kThreads + threadIdx.x;
      if (u >= units) continue;
      const std::uint32_t bits = kUnit == 4 ? signs[s] >> u % 2 * 4 : signs[s];
      float x[kUnit];
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int j = 0; j < kUnit; ++j)
        x[j] = exact::float_of(scales[s] ^ (bits << (31 - j) & exact::kSignBit));
      deliver_wide<kKind, kDtype>(task.sink, u * kUnit, x, old[s]);
    }
  }
  const std::uint64_t last = units * kUnit + threadIdx.x;
  if (blockIdx.x != 0 || last >= task.count) return;
  const std::uint32_t scale = exact::bits_of(task.scales[last / task.block]);
  const std::uint32_t bit = task.signs[last / 8] >> last % 8 & 1;
  deliver_one_to<kKind, kDtype>(task.sink, last, exact::float_of(scale ^ bit << 31));
}

// By fours; with one block all numbers of fours have the quotient 0.
Divider divider_of(std::uint64_t count, std::uint64_t block) {
  return Divider(block >= count ? (1u << 31) - 1 : static_cast<std::uint32_t>(block / 4));
}

template <Delivery kKind>
bool unsign_fast(const UnsignTask& task, Stream stream) {
  const DeviceSink& sink = task.sink.sink;
  const std::uint64_t unit = sink.dtype == Dtype::f32 || kKind == Delivery::difference ? 4 : 8;
  const bool is_known = sink.dtype == Dtype::f32 || sink.dtype == Dtype::bf16;
  if (!is_known || !is_wide(sink) || task.count >> 33 != 0 ||
      (task.block < task.count && task.block % unit != 0))
    return false;
  const auto with = [&](auto* kernel) {
    launch_over(kernel, parts_of(task.count, 16 * kThreads), kThreads, stream,
                WideUnsign{task, divider_of(task.count, task.block)});
    return true;
  };
  return sink.dtype == Dtype::f32 ? with(unsign_wide<kKind, Dtype::f32>)
                                  : with(unsign_wide<kKind, Dtype::bf16>);
}

bool unsign_fast(const UnsignTask& task, Stream stream) {
  switch (task.sink.sink.kind) {
    case Delivery::store: return unsign_fast<Delivery::store>(task, stream);
    case Delivery::add: return unsign_fast<Delivery::add>(task, stream);
    case Delivery::difference: return unsign_fast<Delivery::difference>(task, stream);
  }
  return false;
}

template <Memory kMemory>
void remember_signs(const SignTask& task, Stream stream) {
  const DeviceSource& source = task.source;
  const bool is_known = source.dtype == Dtype::f32 || source.dtype == Dtype::bf16;
  const bool is_fast = is_known && is_aligned(source) && task.count >> 33 == 0 &&
                       (task.blocks == 1 || task.block % 4 == 0);
  const std::uint64_t fours = is_fast ? task.count / 4 : 0;
  const auto with = [&](auto* kernel) {
    launch_over(kernel, parts_of(fours, 4 * kThreads), kThreads, stream, task,
                divider_of(task.count, task.block), fours);
  };
  if (fours > 0)
    source.dtype == Dtype::f32 ? with(sign_remember<kMemory, Dtype::f32>)
                               : with(sign_remember<kMemory, Dtype::bf16>);
  launch_over(sign_remember_any<kMemory>, parts_of(task.count - 4 * fours, kThreads), kThreads,
              stream, task, 4 * fours);
}

template <Memory kMemory>
bool sign_by_tiles(const SignTask& task, Stream stream) {
  const DeviceSource& source = task.source;
  const bool is_known = source.dtype == Dtype::f32 || source.dtype == Dtype::bf16;
  if (!is_known || !is_aligned(source) || !std::has_single_bit(task.block) || task.block < 256 ||
      task.block > kPiece)
    return false;
  const auto with = [&](auto* kernel) {
    launch_over<TileShared>(kernel, parts_of(task.count, kPiece), kTileThreads, stream, task,
                            static_cast<unsigned>(std::countr_zero(task.block)));
    return true;
  };
  return source.dtype == Dtype::f32 ? with(sign_tiles<kMemory, Dtype::f32>)
                                    : with(sign_tiles<kMemory, Dtype::bf16>);
}

template <Memory kMemory>
void sign_with(const SignTask& task, Stream stream) {
  if constexpr (kMemory != Memory::none)
    if (sign_by_tiles<kMemory>(task, stream)) return;
  const std::uint64_t teams = task.blocks * task.pieces;
  const bool is_even = task.block % kChains == 0 || task.blocks == 1;
  if (is_even && task.block > kPiece / 4) {
    launch_over(sign_long<kMemory>, parts_of(kChains * teams, kThreads), kThreads, stream, task);
  } else if (is_even && is_aligned(task.source)) {
    launch_over(sign_aligned<kMemory>, parts_of(4 * teams, kThreads), kThreads, stream, task);
  } else {
    launch_over(sign_sums<kMemory>, parts_of(kChains * teams, kThreads), kThreads, stream, task);
    launch_over(sign_bits<kMemory>, parts_of(task.count, 8 * kThreads), kThreads, stream, task);
  }
  if (task.pieces > 1)
    launch_over(sign_scales, parts_of(task.blocks, kThreads), kThreads, stream, task);
  if constexpr (kMemory != Memory::none) remember_signs<kMemory>(task, stream);
}

}  // namespace

std::uint64_t sign_scratch_bytes(std::uint64_t count, std::uint64_t block) {
  return block <= kPiece ? 0 : parts_of(count, block) * parts_of(block, kPiece) * sizeof(float);
}

void device_sign(const DeviceSource& source, std::uint64_t count, std::uint64_t block,
                 std::byte* scales, std::byte* signs, std::byte* scratch, Stream stream) {
  if (count == 0) return;
  if (block > count) block = count;
  const SignTask task{source,
                      count,
                      block,
                      parts_of(count, block),
                      parts_of(block, kPiece),
                      reinterpret_cast<float*>(scratch),
                      scales,
                      reinterpret_cast<std::uint8_t*>(signs)};
  switch (source.memory) {
    case Memory::none: return sign_with<Memory::none>(task, stream);
    case Memory::feedback: return sign_with<Memory::feedback>(task, stream);
    case Memory::difference: return sign_with<Memory::difference>(task, stream);
  }
}

void device_unsign(const std::byte* scales, const std::byte* signs, std::uint64_t count,
                   std::uint64_t block, const DeviceSink& sink, Stream stream) {
  const UnsignTask task{reinterpret_cast<const float*>(scales),
                        reinterpret_cast<const std::uint8_t*>(signs), count, block, view_of(sink)};
  if (!unsign_fast(task, stream))
    launch_over(unsign, parts_of(count, 4 * kThreads), kThreads, stream, task);
}

}  // namespace laconic::kernel
