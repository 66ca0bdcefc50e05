// Orthonormal columns, as codec/subspace.cpp: f64, columns one after the other, sums in eight
// chains.
//
// One block of threads settles the columns of a matrix, since each waits for those before. A column
// takes three walks down all rows, and in a walk eight chains of additions, each waiting for the
// one before, take the time: 3 r rows / 8 additions of doubles in a row. More blocks could only
// share what half of these threads do beside the chains. All matrices of a batch are settled at
// once; columns are made of rows and rows of columns before and after, by all of the GPU.
#include "laconic/codec/kernel/batch.cuh"
#include "laconic/codec/kernel/normal.cuh"
#include "laconic/codec/kernel/projection.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic::kernel {

namespace {

constexpr int kDraws = 4;  // as subspace.cpp

struct SubspaceTask {
  const float* from;              // read, unless drawn
  float* x;                       // written
  std::uint64_t rows, r, length;  // length: rows, rounded up to kColumnStep
  double* columns;                // [r][length]
  double* dots;                   // [r + 1]
  Key key;
  bool is_start;  // dependent columns are drawn anew
  bool is_drawn;  // all of them are
  bool is_idle;   // nothing is to be done
};

// --- lists of them

std::uint64_t padded(std::uint64_t rows) {
  return parts_of(rows, kColumnStep) * kColumnStep;
}

// One matrix. A start is drawn if *is_unsound.
struct SubspaceSingle {
  SubspaceTask task;
  const std::uint32_t* is_unsound;

  __device__ __forceinline__ std::uint64_t matrices() const { return 1; }
  __device__ __forceinline__ std::uint64_t column_works() const {
    return parts_of(task.length * task.r, kBatchTile);
  }
  __device__ __forceinline__ std::uint64_t row_works() const {
    return parts_of(task.rows * task.r, kFactorTile);
  }
  __device__ __forceinline__ SubspaceTask matrix(std::uint64_t) const {
    SubspaceTask one = task;
    one.is_drawn = task.is_start && *is_unsound != 0;
    return one;
  }
  __device__ __forceinline__ SubspaceTask of_columns(std::uint64_t w, std::uint64_t& own) const {
    own = w;
    return matrix(0);
  }
  __device__ __forceinline__ SubspaceTask of_rows(std::uint64_t w, std::uint64_t& own) const {
    return of_columns(w, own);
  }
};

// kStart: the starts of all matrices of a batch. Else their left factors.
template <bool kStart>
struct SubspaceBatch {
  BatchStep step;

  static constexpr BatchWork kColumnWork =
      kStart ? BatchWork::right_columns : BatchWork::left_columns;
  static constexpr BatchWork kRowWork = kStart ? BatchWork::right : BatchWork::left;

  __device__ __forceinline__ std::uint64_t matrices() const { return step.batch.count; }
  __device__ __forceinline__ std::uint64_t column_works() const {
    return step.batch.works[static_cast<int>(kColumnWork)];
  }
  __device__ __forceinline__ std::uint64_t row_works() const {
    return step.batch.works[static_cast<int>(kRowWork)];
  }
  __device__ __forceinline__ SubspaceTask task_of(const BatchMatrix& m) const {
    const std::uint64_t rows = kStart ? m.columns : m.rows;
    const std::uint64_t length = (rows + kColumnStep - 1) / kColumnStep * kColumnStep;
    double* columns =
        reinterpret_cast<double*>(step.scratch) + (kStart ? m.right_columns : m.left_columns);
    float* x = kStart ? step.next_basis + m.right : step.left + m.left;
    return {.from = kStart ? step.basis + m.right : x,
            .x = x,
            .rows = rows,
            .r = m.rank,
            .length = length,
            .columns = columns,
            .dots = columns + m.rank * length,
            .key = m.key,
            .is_start = kStart,
            .is_drawn = kStart && step.has_basis[m.number] == 0,
            .is_idle = !kStart && step.is_unsound[m.number] != 0};
  }
  __device__ __forceinline__ SubspaceTask matrix(std::uint64_t k) const {
    return task_of(step.batch.matrices[k]);
  }
  __device__ __forceinline__ SubspaceTask of_columns(std::uint64_t w, std::uint64_t& own) const {
    return task_of(matrix_at(step.batch, kColumnWork, w, own));
  }
  __device__ __forceinline__ SubspaceTask of_rows(std::uint64_t w, std::uint64_t& own) const {
    return task_of(matrix_at(step.batch, kRowWork, w, own));
  }
};

// --- rows to columns, and back

constexpr unsigned kSpreadThreads = 256;

__device__ __forceinline__ float drawn(const SubspaceTask& task, int number, std::uint64_t i,
                                       std::uint64_t c) {
  return static_cast<float>(normal_at(
      number == 0 ? task.key : child_key(task.key, static_cast<unsigned>(number)), i * task.r + c));
}

template <class List>
__global__ void __launch_bounds__(kSpreadThreads) make_columns(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.column_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_columns(w, own);
    if (task.is_idle) continue;
    LACONIC_UNROLL_ALL
    for (unsigned t = 0; t < kBatchTile; t += kSpreadThreads) {
      const std::uint64_t k = own * kBatchTile + t + threadIdx.x;
      if (k >= task.length * task.r) break;
      const std::uint64_t i = k % task.length, c = k / task.length;
      task.columns[k] = i >= task.rows
                            ? 0.0
                            : static_cast<double>(task.is_drawn ? drawn(task, 0, i, c)
                                                                : task.from[i * task.r + c]);
    }
  }
}

template <class List>
__global__ void __launch_bounds__(kSpreadThreads) make_rows(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.row_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_rows(w, own);
    const std::uint64_t k = own * kFactorTile + threadIdx.x;
    if (task.is_idle || k >= task.rows * task.r) continue;
    const auto value = static_cast<float>(task.columns[k % task.r * task.length + k / task.r]);
    // What is denormal is zero, as the CPU has it.
    task.x[k] = (exact::bits_of(value) & exact::kInfinity) == 0
                    ? exact::float_of(exact::bits_of(value) & exact::kSignBit)
                    : value;
  }
}

// --- one column after the other. Half of the threads make chains, eight for a dot product; the
// other half brings rows to them.

constexpr unsigned kChains = 256, kBringers = 256, kThreads = kChains + kBringers;
constexpr unsigned kTeams = kChains / 8;   // dot products at a time
constexpr unsigned kMostColumns = kTeams;  // that go through shared memory

struct SubspaceShared {
  double dots[kMostColumns];
  double tiles[2][32 * (64 + 8)];  // of 32 columns, or 16 of more rows
};
static_assert(16 * (128 + 8) <= 32 * (64 + 8) && sizeof(SubspaceShared) <= 48 << 10);

// Where the sum of eight chains is: (s0 + s4) + (s2 + s6), then with those of the odd ones.
__device__ __forceinline__ double chain_sum(double sum) {
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 4);
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// Rows that a thread brings: row `row` of every so many tiles.
template <bool kSubtracts, unsigned kColumns, unsigned kRows>
struct Bringer {
  static constexpr unsigned kStride = kRows + 8;  // neighbouring columns in different banks

  const SubspaceTask& task;
  unsigned v, count, row;
  double own = 0, others[kColumns] = {};

  __device__ __forceinline__ std::uint64_t at(unsigned tile) const {
    return std::uint64_t{tile} * kRows + row;
  }
  // On its way from memory until it is put.
  __device__ __forceinline__ void fetch(unsigned tile) {
    const std::uint64_t i = at(tile);
    const bool is_there = i < task.length;
    const unsigned columns = kSubtracts ? v : count;
    own = is_there ? task.columns[v * task.length + i] : 0.0;
    LACONIC_UNROLL_ALL
    for (unsigned c = 0; c < kColumns; ++c)
      others[c] = is_there && c < columns ? task.columns[c * task.length + i] : 0.0;
  }
  __device__ __forceinline__ void put(unsigned tile, const double* dots, double* to) {
    LACONIC_UNROLL_ALL
    for (unsigned c = 0; c < kColumns; ++c) {
      if (kSubtracts && c < v) own = own - dots[c] * others[c];
      if (c < count) to[c * kStride + row] = others[c];
    }
    to[v * kStride + row] = own;
    if (kSubtracts && at(tile) < task.length) task.columns[v * task.length + at(tile)] = own;
  }
};

// One walk down column v and those before it. First, if kSubtracts, v -= dots[c] column c for all c
// before it; then, of what v is now, new dots: with the first `count` columns, and v . v behind
// them if with_square. A tile of rows goes through shared memory while the one before is added up;
// groups of threads take turns in bringing tiles, so that loads have a while to arrive.
template <bool kSubtracts, unsigned kColumns, unsigned kRows>
__device__ __forceinline__ void walk_tiles(const SubspaceTask& task, unsigned v, unsigned count,
                                           bool with_square) {
  constexpr unsigned kGroups = kBringers / kRows;
  using Brings = Bringer<kSubtracts, kColumns, kRows>;
  auto& shared = shared_memory<SubspaceShared>();
  const auto tiles = static_cast<unsigned>(parts_of(task.length, kRows));
  const unsigned total = count + (with_square ? 1 : 0);
  const bool is_bringer = threadIdx.x >= kChains;
  const unsigned group = (threadIdx.x - kChains) / kRows;  // of bringers
  Brings brings{task, v, count, threadIdx.x % kRows};
  const unsigned k = threadIdx.x % 8, team = threadIdx.x / 8;  // of chains
  const unsigned partner = team < count ? team : v;
  double sum = 0;
  if (is_bringer && group < tiles) brings.fetch(group);
  for (unsigned tile = 0; tile <= tiles; ++tile) {
    if (is_bringer) {
      if (tile < tiles && tile % kGroups == group) {
        brings.put(tile, shared.dots, shared.tiles[tile % 2]);
        if (tile + kGroups < tiles) brings.fetch(tile + kGroups);
      }
    } else if (tile > 0 && team < total) {
      const double* from = shared.tiles[(tile - 1) % 2] + k;
      const double *mine = from + v * Brings::kStride, *other = from + partner * Brings::kStride;
      LACONIC_UNROLL_ALL
      for (unsigned i = 0; i < kRows; i += 8) sum = sum + mine[i] * other[i];
    }
    __syncthreads();  // this tile is there, and the one before is added up
  }
  sum = chain_sum(sum);
  if (!is_bringer && k == 0 && team < total) shared.dots[team] = sum;
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

// Returns where the dots are.
template <bool kSubtracts>
__device__ __forceinline__ const double* walk(const SubspaceTask& task, std::uint64_t v,
                                              std::uint64_t count, bool with_square) {
  const auto column = static_cast<unsigned>(v), others = static_cast<unsigned>(count);
  if (v < 16) {
    walk_tiles<kSubtracts, 16, 128>(task, column, others, with_square);
  } else if (v < kMostColumns) {
    walk_tiles<kSubtracts, 32, 64>(task, column, others, with_square);
  } else {
    walk_memory<kSubtracts>(task, v, count, with_square);
    return task.dots;
  }
  return shared_memory<SubspaceShared>().dots;
}

// Projects column c out of the span of those before it and makes it a unit, or else zero.
__device__ __forceinline__ bool settle(const SubspaceTask& task, std::uint64_t c) {
  const double before = sqrt(walk<false>(task, c, c, true)[c]);
  __syncthreads();
  walk<true>(task, c, c, false);
  const double after = sqrt(walk<true>(task, c, 0, true)[0]);
  const bool is_kept = after > kDependent * before;
  const double scale = is_kept ? 1.0 / after : 0.0;
  double* x = task.columns + c * task.length;
  for (std::uint64_t i = threadIdx.x; i < task.length; i += kThreads) x[i] = x[i] * scale;
  __syncthreads();
  return is_kept;
}

__device__ __forceinline__ void draw_column(const SubspaceTask& task, int number, std::uint64_t c) {
  for (std::uint64_t i = threadIdx.x; i < task.rows; i += kThreads)
    task.columns[c * task.length + i] = static_cast<double>(drawn(task, number, i, c));
  __syncthreads();
}

template <class List>
__global__ void __launch_bounds__(kThreads) settle_columns(List list) {
  for (std::uint64_t k = blockIdx.x; k < list.matrices(); k += gridDim.x) {
    const SubspaceTask task = list.matrix(k);
    for (std::uint64_t c = 0; c < task.r && !task.is_idle; ++c)
      for (int number = -1; number < kDraws; ++number) {
        if (number >= 0) draw_column(task, number, c);
        if (settle(task, c) || !task.is_start) break;
      }
  }
}

// --- on the host

struct SubspaceWorks {
  std::uint64_t columns, matrices, rows;
};

template <class List>
void orthonormalise(const List& list, const SubspaceWorks& works, Stream stream) {
  launch_over(make_columns<List>, works.columns, kSpreadThreads, stream, list);
  launch_over<SubspaceShared>(settle_columns<List>, works.matrices, kThreads, stream, list);
  launch_over(make_rows<List>, works.rows, kSpreadThreads, stream, list);
}

template <bool kStart>
void orthonormalise_batch(const BatchStep& step, Stream stream) {
  using List = SubspaceBatch<kStart>;
  orthonormalise(List{step},
                 {works_of(step.batch, List::kColumnWork), step.batch.count,
                  works_of(step.batch, List::kRowWork)},
                 stream);
}

void orthonormalise_one(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                        const Key* start, const std::uint32_t* is_unsound, Stream stream) {
  const std::uint64_t length = padded(rows);
  auto* columns = reinterpret_cast<double*>(scratch);
  const SubspaceTask task{.from = x,
                          .x = x,
                          .rows = rows,
                          .r = r,
                          .length = length,
                          .columns = columns,
                          .dots = columns + r * length,
                          .key = start != nullptr ? *start : Key{},
                          .is_start = start != nullptr,
                          .is_drawn = false,
                          .is_idle = false};
  orthonormalise(SubspaceSingle{task, is_unsound},
                 {parts_of(length * r, kBatchTile), 1, parts_of(rows * r, kFactorTile)}, stream);
}

}  // namespace

// Columns, dots, and a flag behind them.
std::uint64_t subspace_scratch_bytes(std::uint64_t rows, std::uint64_t r) {
  return (padded(rows) * r + r + 2) * sizeof(double);
}

void device_orthonormalise(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                           Stream stream) {
  orthonormalise_one(x, rows, r, scratch, nullptr, nullptr, stream);
}

void device_orthonormalise_start(float* x, std::uint64_t rows, std::uint64_t r, Key key,
                                 const std::uint32_t* has_start, std::byte* scratch,
                                 Stream stream) {
  auto* is_unsound =
      reinterpret_cast<std::uint32_t*>(scratch + (padded(rows) * r + r + 1) * sizeof(double));
  device_tell_sound(has_start, is_unsound, stream);  // no start is as bad as an unsound one
  device_check_finite(x, rows * r, is_unsound, stream);
  orthonormalise_one(x, rows, r, scratch, &key, is_unsound, stream);
}

void batch_orthonormalise_start(const BatchStep& step, Stream stream) {
  orthonormalise_batch<true>(step, stream);
}

void batch_orthonormalise_left(const BatchStep& step, Stream stream) {
  orthonormalise_batch<false>(step, stream);
}

}  // namespace laconic::kernel
