// Orthonormal columns, as codec/subspace.cpp: f64, columns one after the other,
// sums in eight chains. One block of threads does all of it, since each column
// waits for those before. Eight threads make a dot product.
#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/normal.cuh"
#include "laconic/codec/kernel/projection.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 1024;
constexpr int kDraws = 4;  // as subspace.cpp

struct SubspaceTask {
  float* x;
  std::uint64_t rows, r, length;  // length: rows, rounded up to kColumnStep
  double* columns;                // [r][length]
  double* dots;                   // [r + 1]
  bool is_start;
  Key key;
  const std::uint32_t* has_start;
};

constexpr unsigned kTileRows = 128;              // a multiple of kColumnStep
constexpr unsigned kTileStride = kTileRows + 8;  // neighbouring columns in different banks
constexpr unsigned kTileColumns = 32;
constexpr unsigned kPrefetched = kTileColumns * kTileRows / kThreads;

struct SubspaceShared {
  std::uint32_t is_unsound;
  double tile[kTileColumns][kTileStride];
};

// Where the sum of eight chains is: (s0 + s4) + (s2 + s6), then with those of
// the odd ones.
__device__ __forceinline__ double chain_sum(double sum) {
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 4);
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// One walk down column v and those before it. First, if kSubtracts, v -=
// dots[c] column c for all c before it; then, of what v is now, new dots: with
// the first `count` columns, and v . v behind them if with_square. Few columns
// go through shared memory, a tile of rows at a time, while the next tile is on
// its way; the chains of additions are what takes the time.
template <bool kSubtracts>
__device__ __forceinline__ void walk_tiles(const SubspaceTask& task, std::uint64_t v,
                                           std::uint64_t count, bool with_square) {
  auto& shared = shared_memory<SubspaceShared>();
  const unsigned columns = static_cast<unsigned>(v) + 1,
                 mine = columns - 1;  // v is the last
  const unsigned total = static_cast<unsigned>(count) + (with_square ? 1 : 0);
  const unsigned k = threadIdx.x % 8, team = threadIdx.x / 8;
  const unsigned partner = team < count ? team : mine;
  const auto tiles = static_cast<unsigned>(parts_of(task.length, kTileRows));
  double next[kPrefetched];
  const auto fetch = [&](unsigned tile) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned p = 0; p < kPrefetched; ++p) {
      const unsigned at = p * kThreads + threadIdx.x, c = at / kTileRows;
      const std::uint64_t i = std::uint64_t{tile} * kTileRows + at % kTileRows;
      next[p] = c < columns && i < task.length ? task.columns[c * task.length + i] : 0.0;
    }
  };
  fetch(0);
  double sum = 0;
  for (unsigned tile = 0; tile < tiles; ++tile) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned p = 0; p < kPrefetched; ++p) {
      const unsigned at = p * kThreads + threadIdx.x;
      if (at / kTileRows < columns) shared.tile[at / kTileRows][at % kTileRows] = next[p];
    }
    __syncthreads();
    if (tile + 1 < tiles) fetch(tile + 1);
    const std::uint64_t first = std::uint64_t{tile} * kTileRows;
    if (kSubtracts) {
      if (threadIdx.x < kTileRows && first + threadIdx.x < task.length) {
        double value = shared.tile[mine][threadIdx.x];
        for (unsigned c = 0; c < mine; ++c)
          value = value - task.dots[c] * shared.tile[c][threadIdx.x];
        shared.tile[mine][threadIdx.x] = value;
        task.columns[v * task.length + first + threadIdx.x] = value;
      }
      __syncthreads();
    }
    if (team < total) {
      const unsigned rows =
          task.length - first < kTileRows ? static_cast<unsigned>(task.length - first) : kTileRows;
#ifdef __CUDACC__
#pragma unroll 8
#endif
      for (unsigned i = k; i < rows; i += 8)
        sum = sum + shared.tile[mine][i] * shared.tile[partner][i];
    }
    __syncthreads();
  }
  sum = chain_sum(sum);
  if (k == 0 && team < total) task.dots[team] = sum;
  __syncthreads();
}

// The same for any number of columns, from where they are.
template <bool kSubtracts>
__device__ __forceinline__ void walk_memory(const SubspaceTask& task, std::uint64_t v,
                                            std::uint64_t count, bool with_square) {
  double* x = task.columns + v * task.length;
  if (kSubtracts) {
    for (std::uint64_t i = threadIdx.x; i < task.length; i += kThreads) {
      double value = x[i];
      for (std::uint64_t c = 0; c < v; ++c)
        value = value - task.dots[c] * task.columns[c * task.length + i];
      x[i] = value;
    }
    __syncthreads();
  }
  const std::uint64_t total = count + (with_square ? 1 : 0);
  const unsigned k = threadIdx.x % 8;
  const std::uint64_t teams = kThreads / 8, rounds = parts_of(total, teams);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t c = round * teams + threadIdx.x / 8;
    const double* other = task.columns + (c < count ? c : v) * task.length;
    double sum = 0;
    if (c < total)
      for (std::uint64_t i = k; i < task.length; i += kColumnStep) sum = sum + x[i] * other[i];
    sum = chain_sum(sum);
    if (k == 0 && c < total) task.dots[c] = sum;
  }
  __syncthreads();
}

template <bool kSubtracts>
__device__ __forceinline__ void walk(const SubspaceTask& task, std::uint64_t v, std::uint64_t count,
                                     bool with_square) {
  if (v < kTileColumns)
    walk_tiles<kSubtracts>(task, v, count, with_square);
  else
    walk_memory<kSubtracts>(task, v, count, with_square);
}

// Projects column c out of the span of those before it and makes it a unit, or
// else zero.
__device__ __forceinline__ bool settle(const SubspaceTask& task, std::uint64_t c) {
  walk<false>(task, c, c, true);
  const double before = sqrt(task.dots[c]);
  __syncthreads();
  walk<true>(task, c, c, false);
  walk<true>(task, c, 0, true);
  const double after = sqrt(task.dots[0]);
  const bool is_kept = after > kDependent * before;
  const double scale = is_kept ? 1.0 / after : 0.0;
  double* x = task.columns + c * task.length;
  for (std::uint64_t i = threadIdx.x; i < task.length; i += kThreads) x[i] = x[i] * scale;
  __syncthreads();
  return is_kept;
}

__device__ __forceinline__ float drawn(const SubspaceTask& task, int number, std::uint64_t i,
                                       std::uint64_t c) {
  return static_cast<float>(normal_at(
      number == 0 ? task.key : child_key(task.key, static_cast<unsigned>(number)), i * task.r + c));
}

__global__ void __launch_bounds__(kThreads) orthonormalise(SubspaceTask task) {
  auto& shared = shared_memory<SubspaceShared>();
  const std::uint64_t size = task.rows * task.r;
  if (threadIdx.x == 0) shared.is_unsound = task.is_start && *task.has_start == 0 ? 1 : 0;
  __syncthreads();
  if (task.is_start) {
    for (std::uint64_t i = threadIdx.x; i < size; i += kThreads)
      if (!exact::is_finite(task.x[i])) shared.is_unsound = 1;
    __syncthreads();
  }
  const bool is_drawn = shared.is_unsound != 0;
  for (std::uint64_t k = threadIdx.x; k < task.length * task.r; k += kThreads) {
    const std::uint64_t i = k / task.r, c = k % task.r;
    task.columns[c * task.length + i] =
        i >= task.rows ? 0.0 : static_cast<double>(is_drawn ? drawn(task, 0, i, c) : task.x[k]);
  }
  __syncthreads();
  for (std::uint64_t c = 0; c < task.r; ++c) {
    bool is_kept = settle(task, c);
    for (int number = 0; task.is_start && number < kDraws && !is_kept; ++number) {
      for (std::uint64_t i = threadIdx.x; i < task.rows; i += kThreads)
        task.columns[c * task.length + i] = static_cast<double>(drawn(task, number, i, c));
      __syncthreads();
      is_kept = settle(task, c);
    }
  }
  for (std::uint64_t k = threadIdx.x; k < size; k += kThreads) {
    const auto value = static_cast<float>(task.columns[k % task.r * task.length + k / task.r]);
    // What is denormal is zero, as the CPU has it.
    task.x[k] = (exact::bits_of(value) & exact::kInfinity) == 0
                    ? exact::float_of(exact::bits_of(value) & exact::kSignBit)
                    : value;
  }
}

__global__ void __launch_bounds__(256)
    check_finite(const float* x, std::uint64_t count, std::uint32_t* is_unsound) {
  bool found = false;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    found |= !exact::is_finite(x[i]);
  if (found) *is_unsound = 1;
}

__global__ void tell_sound(const std::uint32_t* is_unsound, std::uint32_t* is_sound) {
  *is_sound = *is_unsound == 0 ? 1 : 0;
}

// --- factors

__device__ __forceinline__ bool is_unfit(Dtype dtype, const std::byte* values, std::uint64_t i) {
  if (dtype == Dtype::f32) return !exact::is_finite(reinterpret_cast<const float*>(values)[i]);
  const unsigned exponent = dtype == Dtype::f16 ? 0x7C00 : 0x7F80;
  return (reinterpret_cast<const std::uint16_t*>(values)[i] & exponent) == exponent;
}

__device__ __forceinline__ void put_nan(Dtype dtype, std::byte* values, std::uint64_t i) {
  if (dtype == Dtype::f32)
    reinterpret_cast<std::uint32_t*>(values)[i] = exact::kNan;
  else
    reinterpret_cast<std::uint16_t*>(values)[i] = dtype == Dtype::f16 ? 0x7E00 : 0x7FC0;
}

__global__ void __launch_bounds__(256)
    put_factors(Dtype dtype, const float* in, std::uint64_t count, std::byte* out,
                std::uint32_t* is_unsound) {
  bool found = false;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total()) {
    if (dtype == Dtype::f32)
      reinterpret_cast<float*>(out)[i] = in[i];
    else
      store_narrow(dtype, out, i, in[i]);
    found |= is_unfit(dtype, out, i);
  }
  if (found && is_unsound != nullptr) *is_unsound = 1;
}

__global__ void __launch_bounds__(256)
    get_factors(Dtype dtype, const std::byte* in, std::uint64_t count, float* out) {
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    out[i] = load_one(dtype, in, i);
}

__global__ void __launch_bounds__(256) spoil_factors(Dtype dtype, const std::uint32_t* is_unsound,
                                                     std::uint64_t count, std::byte* out) {
  if (*is_unsound == 0) return;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total()) put_nan(dtype, out, i);
}

__global__ void __launch_bounds__(256)
    settle_factors(Dtype dtype, std::uint64_t count, std::byte* values) {
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    if (is_unfit(dtype, values, i)) put_nan(dtype, values, i);
}

SubspaceTask task_of(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch) {
  const std::uint64_t length = parts_of(rows, kColumnStep) * kColumnStep;
  auto* columns = reinterpret_cast<double*>(scratch);
  return {x, rows, r, length, columns, columns + r * length, false, {}, nullptr};
}

}  // namespace

std::uint64_t subspace_scratch_bytes(std::uint64_t rows, std::uint64_t r) {
  return (parts_of(rows, kColumnStep) * kColumnStep * r + r + 1) * sizeof(double);
}

void device_orthonormalise(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                           Stream stream) {
  launch<SubspaceShared>(orthonormalise, 1, kThreads, stream, task_of(x, rows, r, scratch));
}

void device_orthonormalise_start(float* x, std::uint64_t rows, std::uint64_t r, Key key,
                                 const std::uint32_t* has_start, std::byte* scratch,
                                 Stream stream) {
  SubspaceTask task = task_of(x, rows, r, scratch);
  task.is_start = true;
  task.key = key;
  task.has_start = has_start;
  launch<SubspaceShared>(orthonormalise, 1, kThreads, stream, task);
}

void device_check_finite(const float* x, std::uint64_t count, std::uint32_t* is_unsound,
                         Stream stream) {
  launch_over(check_finite, parts_of(count, 256), 256, stream, x, count, is_unsound);
}

void device_tell_sound(const std::uint32_t* is_unsound, std::uint32_t* is_sound, Stream stream) {
  launch(tell_sound, 1, 1, stream, is_unsound, is_sound);
}

void device_put_factors(Dtype dtype, const float* in, std::uint64_t count, std::byte* out,
                        std::uint32_t* is_unsound, Stream stream) {
  launch_over(put_factors, parts_of(count, 256), 256, stream, dtype, in, count, out, is_unsound);
}

void device_get_factors(Dtype dtype, const std::byte* in, std::uint64_t count, float* out,
                        Stream stream) {
  launch_over(get_factors, parts_of(count, 256), 256, stream, dtype, in, count, out);
}

void device_spoil_factors(Dtype dtype, const std::uint32_t* is_unsound, std::uint64_t count,
                          std::byte* out, Stream stream) {
  launch_over(spoil_factors, parts_of(count, 256), 256, stream, dtype, is_unsound, count, out);
}

void device_settle_factors(Dtype dtype, std::uint64_t count, std::byte* values, Stream stream) {
  launch_over(settle_factors, parts_of(count, 256), 256, stream, dtype, count, values);
}

}  // namespace laconic::kernel
