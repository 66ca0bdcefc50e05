// Orthonormal columns, as codec/subspace.cpp: f64, by the products of columns with each other,
// twice.
//
// Products are summed over blocks of kGramRows rows, each by a block of threads, with eight chains
// of additions; then over blocks, in order, by one block of threads for a matrix, which makes the
// triangle R of them; then a thread solves a row. Where columns are too nearly dependent for that,
// which is rare, one block of threads settles those of its matrix one after the other. All matrices
// of a batch share the kernels.
#include "laconic/codec/kernel/batch.cuh"
#include "laconic/codec/kernel/normal.cuh"
#include "laconic/codec/kernel/projection.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic::kernel {

namespace {

constexpr int kDraws = 4;  // as subspace.cpp

struct SubspaceTask {
  const float* from;                 // read, unless drawn
  float* x;                          // written
  std::uint64_t rows, r, length;     // length: rows, rounded up to kColumnStep
  double* columns;                   // in blocks of kGramRows rows, or if settled [r][length]
  double* parts;                     // [blocks][pairs of columns]: products, summed over a block
  double *triangle, *scales, *dots;  // [r][r], [r], [2 r + 1]
  double* is_settled;                // not 0: one after the other
  Key key;
  bool is_start;  // dependent columns are drawn anew
  bool is_drawn;  // all of them are
  bool is_idle;   // nothing is to be done

  __device__ __forceinline__ std::uint64_t pairs() const { return r * (r + 1) / 2; }
  __device__ __forceinline__ std::uint64_t rows_of_block(std::uint64_t b) const {
    const std::uint64_t left = length - b * kGramRows;
    return left < kGramRows ? left : kGramRows;
  }
  __device__ __forceinline__ double* block(std::uint64_t b) const {
    return columns + b * kGramRows * r;
  }
};

// Parts of the scratch, in the order of subspace_doubles().
LACONIC_BOTH SubspaceTask placed(SubspaceTask task, double* scratch) {
  const std::uint64_t blocks = (task.rows + kGramRows - 1) / kGramRows;
  task.length = (task.rows + kColumnStep - 1) / kColumnStep * kColumnStep;
  task.columns = scratch;
  task.parts = task.columns + task.length * task.r;
  task.triangle = task.parts + blocks * (task.r * (task.r + 1) / 2);
  task.scales = task.triangle + task.r * task.r;
  task.dots = task.scales + task.r;
  task.is_settled = task.dots + 2 * task.r + 1;
  return task;
}

// --- lists of them

// One matrix. A start is drawn if *is_unsound.
struct SubspaceSingle {
  SubspaceTask task;
  const std::uint32_t* is_unsound;

  __device__ __forceinline__ std::uint64_t matrices() const { return 1; }
  __device__ __forceinline__ std::uint64_t column_works() const {
    return parts_of(task.length * task.r, kBatchTile);
  }
  __device__ __forceinline__ std::uint64_t block_works() const {
    return parts_of(task.rows, kGramRows);
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
  __device__ __forceinline__ SubspaceTask of_blocks(std::uint64_t w, std::uint64_t& own) const {
    return of_columns(w, own);
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
  static constexpr BatchWork kBlockWork = kStart ? BatchWork::right_blocks : BatchWork::left_blocks;
  static constexpr BatchWork kRowWork = kStart ? BatchWork::right : BatchWork::left;

  __device__ __forceinline__ std::uint64_t matrices() const { return step.batch.count; }
  __device__ __forceinline__ std::uint64_t column_works() const {
    return step.batch.works[static_cast<int>(kColumnWork)];
  }
  __device__ __forceinline__ std::uint64_t block_works() const {
    return step.batch.works[static_cast<int>(kBlockWork)];
  }
  __device__ __forceinline__ std::uint64_t row_works() const {
    return step.batch.works[static_cast<int>(kRowWork)];
  }
  __device__ __forceinline__ SubspaceTask task_of(const BatchMatrix& m) const {
    float* x = kStart ? step.next_basis + m.right : step.left + m.left;
    return placed(
        {.from = kStart ? step.basis + m.right : x,
         .x = x,
         .rows = kStart ? m.columns : m.rows,
         .r = m.rank,
         .key = m.key,
         .is_start = kStart,
         .is_drawn = kStart && step.has_basis[m.number] == 0,
         .is_idle = !kStart && step.is_unsound[m.number] != 0},
        reinterpret_cast<double*>(step.scratch) + (kStart ? m.right_columns : m.left_columns));
  }
  __device__ __forceinline__ SubspaceTask matrix(std::uint64_t k) const {
    return task_of(step.batch.matrices[k]);
  }
  __device__ __forceinline__ SubspaceTask of_columns(std::uint64_t w, std::uint64_t& own) const {
    return task_of(matrix_at(step.batch, kColumnWork, w, own));
  }
  __device__ __forceinline__ SubspaceTask of_blocks(std::uint64_t w, std::uint64_t& own) const {
    return task_of(matrix_at(step.batch, kBlockWork, w, own));
  }
  __device__ __forceinline__ SubspaceTask of_rows(std::uint64_t w, std::uint64_t& own) const {
    return task_of(matrix_at(step.batch, kRowWork, w, own));
  }
};

// --- rows to columns, and back

constexpr unsigned kThreads = 256;

__device__ __forceinline__ float drawn(const SubspaceTask& task, int number, std::uint64_t i,
                                       std::uint64_t c) {
  return static_cast<float>(normal_at(
      number == 0 ? task.key : child_key(task.key, static_cast<unsigned>(number)), i * task.r + c));
}

__device__ __forceinline__ double begun(const SubspaceTask& task, std::uint64_t i,
                                        std::uint64_t c) {
  if (i >= task.rows) return 0.0;
  return static_cast<double>(task.is_drawn ? drawn(task, 0, i, c) : task.from[i * task.r + c]);
}

template <class List>
__global__ void __launch_bounds__(kThreads) make_columns(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.column_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_columns(w, own);
    if (task.is_idle) continue;
    if (own == 0 && threadIdx.x == 0) *task.is_settled = 0;
    LACONIC_UNROLL_ALL
    for (unsigned t = 0; t < kBatchTile; t += kThreads) {
      const std::uint64_t k = own * kBatchTile + t + threadIdx.x;
      if (k >= task.length * task.r) break;
      const std::uint64_t b = k / (kGramRows * task.r), within = k - b * kGramRows * task.r;
      const std::uint64_t rows = task.rows_of_block(b);
      task.columns[k] = begun(task, b * kGramRows + within % rows, within / rows);
    }
  }
}

template <class List>
__global__ void __launch_bounds__(kThreads) make_rows(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.row_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_rows(w, own);
    const std::uint64_t k = own * kFactorTile + threadIdx.x;
    if (task.is_idle || k >= task.rows * task.r) continue;
    const std::uint64_t i = k / task.r, c = k % task.r, b = i / kGramRows;
    const double* from = *task.is_settled != 0
                             ? task.columns + c * task.length + i
                             : task.block(b) + c * task.rows_of_block(b) + i % kGramRows;
    const auto value = static_cast<float>(*from);
    // What is denormal is zero, as the CPU has it.
    task.x[k] = (exact::bits_of(value) & exact::kInfinity) == 0
                    ? exact::float_of(exact::bits_of(value) & exact::kSignBit)
                    : value;
  }
}

// --- products of columns, and their triangle

constexpr unsigned kTeams = kThreads / 8;  // dot products at a time

// Where the sum of eight chains is: (s0 + s4) + (s2 + s6), then with those of the odd ones.
__device__ __forceinline__ double chain_sum(double sum) {
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 4);
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// Pair number `first`, then every `step`-th: (c, j) with j <= c is number c (c + 1) / 2 + j.
struct Pairs {
  std::uint64_t c = 0, j;
  __device__ __forceinline__ explicit Pairs(std::uint64_t first) : j(first) { settle(); }
  __device__ __forceinline__ void skip(std::uint64_t step) {
    j += step;
    settle();
  }
  __device__ __forceinline__ void settle() {
    while (j > c) j -= ++c;
  }
};

template <class List>
__global__ void __launch_bounds__(kThreads) multiply_columns(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.block_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_blocks(w, own);
    if (task.is_idle) continue;
    const std::uint64_t rows = task.rows_of_block(own), pairs = task.pairs();
    const unsigned k = threadIdx.x % 8, team = threadIdx.x / 8;
    const double* block = task.block(own);
    Pairs pair(team);
    for (std::uint64_t round = 0; round < pairs; round += kTeams, pair.skip(kTeams)) {
      double sum = 0;
      if (round + team < pairs) {
        const double *x = block + pair.c * rows, *y = block + pair.j * rows;
        LACONIC_UNROLL_FOUR
        for (unsigned i = k; i < rows; i += kColumnStep) sum = sum + x[i] * y[i];
      }
      sum = chain_sum(sum);
      if (k == 0 && round + team < pairs) task.parts[own * pairs + round + team] = sum;
    }
  }
}

template <class List>
__global__ void __launch_bounds__(kThreads) make_triangles(List list, bool is_first) {
  for (std::uint64_t m = blockIdx.x; m < list.matrices(); m += gridDim.x) {
    const SubspaceTask task = list.matrix(m);
    if (task.is_idle) continue;
    const bool is_settled = !is_first && *task.is_settled != 0;
    __syncthreads();  // before anybody finds that it is, below
    if (is_settled) continue;
    const std::uint64_t blocks = (task.rows + kGramRows - 1) / kGramRows, pairs = task.pairs();
    const std::uint64_t r = task.r;
    Pairs pair(threadIdx.x);
    for (std::uint64_t p = threadIdx.x; p < pairs; p += kThreads, pair.skip(kThreads)) {
      double sum = 0;
      LACONIC_UNROLL_FOUR
      for (std::uint64_t b = 0; b < blocks; ++b) sum = sum + task.parts[b * pairs + p];
      task.triangle[pair.c * r + pair.j] = sum;
      if (pair.c == pair.j) task.dots[pair.c] = sum;
      const double straight = pair.c == pair.j && sum != 0 ? 1.0 : 0.0;
      if (!is_first && fabs(sum - straight) > kStraight) *task.is_settled = 1;
    }
    __syncthreads();
    for (std::uint64_t k = 0; k < r; ++k) {
      const double rest = task.triangle[k * r + k];
      const bool is_zero = task.dots[k] == 0;
      const double scale = is_zero ? 0.0 : 1.0 / sqrt(rest);
      if (threadIdx.x == 0) {
        task.scales[k] = scale;
        if (is_first && (rest < kApart * task.dots[k] || (is_zero && task.is_start)))
          *task.is_settled = 1;
      }
      for (std::uint64_t c = k + 1 + threadIdx.x; c < r; c += kThreads)
        task.triangle[c * r + k] = task.triangle[c * r + k] * scale;
      __syncthreads();
      const std::uint64_t left = r - 1 - k;
      Pairs rest_of(threadIdx.x);
      for (std::uint64_t p = threadIdx.x; p < left * (left + 1) / 2;
           p += kThreads, rest_of.skip(kThreads)) {
        const std::uint64_t c = k + 1 + rest_of.c, j = k + 1 + rest_of.j;
        double& at = task.triangle[c * r + j];
        at = at - task.triangle[j * r + k] * task.triangle[c * r + k];
      }
      __syncthreads();
    }
  }
}

// A thread has a row.
template <class List>
__global__ void __launch_bounds__(kThreads) solve_rows(List list) {
  static_assert(kThreads == kGramRows);
  for (std::uint64_t w = blockIdx.x; w < list.block_works(); w += gridDim.x) {
    std::uint64_t own = 0;
    const SubspaceTask task = list.of_blocks(w, own);
    const std::uint64_t rows = task.is_idle ? 0 : task.rows_of_block(own);
    if (threadIdx.x >= rows || *task.is_settled != 0) continue;
    double* x = task.block(own) + threadIdx.x;
    for (std::uint64_t c = 0; c < task.r; ++c) {
      const double* factors = task.triangle + c * task.r;
      double value = x[c * rows];
      LACONIC_UNROLL_FOUR
      for (std::uint64_t j = 0; j < c; ++j) value = value - factors[j] * x[j * rows];
      x[c * rows] = value * task.scales[c];
    }
  }
}

// --- one column after the other, whatever they are

// One walk down column v and those before it. First, if kSubtracts, v -= dots[c] column c for all c
// before it; then, of what v is now, new dots: with the first `count` columns, and v . v behind
// them if with_square.
template <bool kSubtracts>
__device__ __forceinline__ void walk(const SubspaceTask& task, std::uint64_t v, std::uint64_t count,
                                     bool with_square) {
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

// Projects column c out of the span of those before it and makes it a unit, or else zero.
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

__device__ __forceinline__ void draw_column(const SubspaceTask& task, int number, std::uint64_t c) {
  for (std::uint64_t i = threadIdx.x; i < task.rows; i += kThreads)
    task.columns[c * task.length + i] = static_cast<double>(drawn(task, number, i, c));
  __syncthreads();
}

template <class List>
__global__ void __launch_bounds__(kThreads) settle_columns(List list) {
  for (std::uint64_t m = blockIdx.x; m < list.matrices(); m += gridDim.x) {
    const SubspaceTask task = list.matrix(m);
    if (task.is_idle || *task.is_settled == 0) continue;
    for (std::uint64_t k = threadIdx.x; k < task.length * task.r; k += kThreads)
      task.columns[k] = begun(task, k % task.length, k / task.length);
    __syncthreads();
    for (std::uint64_t c = 0; c < task.r; ++c)
      for (int number = -1; number < kDraws; ++number) {
        if (number >= 0) draw_column(task, number, c);
        if (settle(task, c) || !task.is_start) break;
      }
  }
}

// --- on the host

struct SubspaceWorks {
  std::uint64_t columns, blocks, matrices, rows;
};

template <class List>
void orthonormalise(const List& list, const SubspaceWorks& works, Stream stream) {
  launch_over(make_columns<List>, works.columns, kThreads, stream, list);
  for (int turn = 0; turn < 2; ++turn) {
    launch_over(multiply_columns<List>, works.blocks, kThreads, stream, list);
    launch_over(make_triangles<List>, works.matrices, kThreads, stream, list, turn == 0);
    launch_over(solve_rows<List>, works.blocks, kThreads, stream, list);
  }
  launch_over(settle_columns<List>, works.matrices, kThreads, stream, list);
  launch_over(make_rows<List>, works.rows, kThreads, stream, list);
}

template <bool kStart>
void orthonormalise_batch(const BatchStep& step, Stream stream) {
  using List = SubspaceBatch<kStart>;
  orthonormalise(List{step},
                 {works_of(step.batch, List::kColumnWork), works_of(step.batch, List::kBlockWork),
                  step.batch.count, works_of(step.batch, List::kRowWork)},
                 stream);
}

void orthonormalise_one(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                        const Key* start, const std::uint32_t* is_unsound, Stream stream) {
  const SubspaceTask task = placed({.from = x,
                                    .x = x,
                                    .rows = rows,
                                    .r = r,
                                    .key = start != nullptr ? *start : Key{},
                                    .is_start = start != nullptr,
                                    .is_drawn = false,
                                    .is_idle = false},
                                   reinterpret_cast<double*>(scratch));
  orthonormalise(SubspaceSingle{task, is_unsound},
                 {parts_of(task.length * r, kBatchTile), parts_of(rows, kGramRows), 1,
                  parts_of(rows * r, kFactorTile)},
                 stream);
}

}  // namespace

// A flag stands behind.
std::uint64_t subspace_scratch_bytes(std::uint64_t rows, std::uint64_t r) {
  return (subspace_doubles(rows, r) + 1) * sizeof(double);
}

void device_orthonormalise(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                           Stream stream) {
  orthonormalise_one(x, rows, r, scratch, nullptr, nullptr, stream);
}

void device_orthonormalise_start(float* x, std::uint64_t rows, std::uint64_t r, Key key,
                                 const std::uint32_t* has_start, std::byte* scratch,
                                 Stream stream) {
  auto* is_unsound =
      reinterpret_cast<std::uint32_t*>(scratch + subspace_doubles(rows, r) * sizeof(double));
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
