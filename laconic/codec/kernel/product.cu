// Products with a thin matrix, each sum a chain in the order of codec/kernel/matrix.hpp: blocks of
// 256 terms from zero, then the blocks in order. Blocks of terms are independent, so each is a
// piece of work of its own, and a second pass adds their sums. Kernels take their work from a list:
// one matrix, or all of a batch (kernel/factor_batch.hpp).
#include "laconic/codec/kernel/batch.cuh"
#include "laconic/codec/kernel/matrix.hpp"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;
static_assert(kThreads == kFactorTile);
constexpr unsigned kWide = kProductWide;
constexpr unsigned kBlock = kSumBlock;  // terms of a chain

// --- y = a q. A block of threads takes 128 rows and one block of terms, 32 terms at a time through
// shared memory; a thread has one row and 8 of 16 columns.

constexpr unsigned kRows = kMultiplyRows;
constexpr unsigned kTerms = 32;

struct MultiplyShared {
  float a[kRows][kTerms + 1];  // one more, so that rows lie in different banks
  float q[kTerms][kWide];
};

struct MultiplyTask {
  const float* a;
  std::uint64_t n, m;
  const float* q;
  std::uint64_t r;
  float* parts;  // [ceil(m / kBlock)][n][r]
  bool is_aligned;
};

struct MultiplyBatch {
  BatchStep step;

  __device__ __forceinline__ std::uint64_t size() const {
    return step.batch.works[static_cast<int>(BatchWork::multiply)];
  }
  __device__ __forceinline__ MultiplyTask at(std::uint64_t w, std::uint64_t& own) const {
    const BatchMatrix m = matrix_at(step.batch, BatchWork::multiply, w, own);
    const float* a = input_of(step, m);
    return {a,
            m.rows,
            m.columns,
            step.next_basis + m.right,
            m.rank,
            reinterpret_cast<float*>(step.scratch) + m.left_parts,
            m.columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(a) % 16 == 0};
  }
};

template <class List>
__global__ void __launch_bounds__(kThreads) multiply_blocks(List list) {
  auto& shared = shared_memory<MultiplyShared>();
  const unsigned row = threadIdx.x % kRows, half = threadIdx.x / kRows * 8;
  for (std::uint64_t w = blockIdx.x; w < list.size(); w += gridDim.x) {
    std::uint64_t own = 0;
    const MultiplyTask task = list.at(w, own);
    const std::uint64_t row_tiles = parts_of(task.n, kRows), blocks = parts_of(task.m, kBlock);
    const std::uint64_t i0 = own % row_tiles * kRows, block = own / row_tiles % blocks;
    const std::uint64_t c0 = own / row_tiles / blocks * kWide;
    float sum[8] = {};
    const std::uint64_t j_end = (block + 1) * kBlock < task.m ? (block + 1) * kBlock : task.m;
    for (std::uint64_t j0 = block * kBlock; j0 < j_end; j0 += kTerms) {
      if (task.is_aligned && i0 + kRows <= task.n && j0 + kTerms <= j_end) {
        LACONIC_UNROLL_ALL
        for (unsigned k = threadIdx.x; k < kRows * kTerms / 4; k += kThreads) {
          const unsigned i = k / (kTerms / 4), j = k % (kTerms / 4) * 4;
          const Four four = load_four(Dtype::f32, task.a, (i0 + i) * task.m + j0 + j, 4, true);
          for (unsigned t = 0; t < 4; ++t) shared.a[i][j + t] = four.at[t];
        }
      } else {
        for (unsigned k = threadIdx.x; k < kRows * kTerms; k += kThreads) {
          const std::uint64_t i = i0 + k / kTerms, j = j0 + k % kTerms;
          shared.a[k / kTerms][k % kTerms] = i < task.n && j < j_end ? task.a[i * task.m + j] : 0;
        }
      }
      for (unsigned k = threadIdx.x; k < kTerms * kWide; k += kThreads) {
        const std::uint64_t j = j0 + k / kWide, c = c0 + k % kWide;
        shared.q[k / kWide][k % kWide] = j < j_end && c < task.r ? task.q[j * task.r + c] : 0;
      }
      __syncthreads();
      const unsigned terms = j_end - j0 < kTerms ? static_cast<unsigned>(j_end - j0) : kTerms;
      if (terms == kTerms) {
        LACONIC_UNROLL_ALL
        for (unsigned j = 0; j < kTerms; ++j) {
          const float x = shared.a[row][j];
          LACONIC_UNROLL_ALL
          for (unsigned c = 0; c < 8; ++c) sum[c] = sum[c] + x * shared.q[j][half + c];
        }
      } else {
        for (unsigned j = 0; j < terms; ++j) {
          const float x = shared.a[row][j];
          LACONIC_UNROLL_ALL
          for (unsigned c = 0; c < 8; ++c) sum[c] = sum[c] + x * shared.q[j][half + c];
        }
      }
      __syncthreads();
    }
    if (i0 + row >= task.n) continue;
    float* to = task.parts + (block * task.n + i0 + row) * task.r;
    LACONIC_UNROLL_ALL
    for (unsigned c = 0; c < 8; ++c)
      if (c0 + half + c < task.r) to[c0 + half + c] = sum[c];
  }
}

// --- q = a^T p. A thread has one column of a and 16 of p, and walks down a block of 256 rows.

struct TransposedShared {
  float p[kBlock][kWide];
};

struct TransposedTask {
  const float* a;
  std::uint64_t n, m;
  const float* p;
  std::uint64_t r;
  float* parts;  // [ceil(n / kBlock)][m][r]
};

constexpr unsigned kColumns = kTransposedColumns;

struct TransposedBatch {
  BatchStep step;

  __device__ __forceinline__ std::uint64_t size() const {
    return step.batch.works[static_cast<int>(BatchWork::transposed)];
  }
  __device__ __forceinline__ TransposedTask at(std::uint64_t w, std::uint64_t& own) const {
    const BatchMatrix m = matrix_at(step.batch, BatchWork::transposed, w, own);
    return {input_of(step, m),  m.rows, m.columns,
            step.left + m.left, m.rank, reinterpret_cast<float*>(step.scratch) + m.right_parts};
  }
};

template <class List>
__global__ void __launch_bounds__(kColumns) transposed_blocks(List list) {
  auto& shared = shared_memory<TransposedShared>();
  for (std::uint64_t w = blockIdx.x; w < list.size(); w += gridDim.x) {
    std::uint64_t own = 0;
    const TransposedTask task = list.at(w, own);
    const std::uint64_t column_tiles = parts_of(task.m, kColumns),
                        blocks = parts_of(task.n, kBlock);
    const std::uint64_t j = own % column_tiles * kColumns + threadIdx.x;
    const std::uint64_t block = own / column_tiles % blocks, i0 = block * kBlock;
    const std::uint64_t c0 = own / column_tiles / blocks * kWide;
    const unsigned rows = task.n - i0 < kBlock ? static_cast<unsigned>(task.n - i0) : kBlock;
    for (unsigned k = threadIdx.x; k < rows * kWide; k += kColumns) {
      const std::uint64_t c = c0 + k % kWide;
      shared.p[k / kWide][k % kWide] = c < task.r ? task.p[(i0 + k / kWide) * task.r + c] : 0;
    }
    __syncthreads();
    if (j < task.m) {
      float sum[kWide] = {};
      const float* a = task.a + i0 * task.m + j;
#ifdef __CUDACC__
#pragma unroll 8
#endif
      for (unsigned i = 0; i < rows; ++i) {
        const float x = a[i * task.m];
        LACONIC_UNROLL_ALL
        for (unsigned c = 0; c < kWide; ++c) sum[c] = sum[c] + x * shared.p[i][c];
      }
      float* to = task.parts + (block * task.m + j) * task.r + c0;
      LACONIC_UNROLL_ALL
      for (unsigned c = 0; c < kWide; ++c)
        if (c0 + c < task.r) to[c] = sum[c];
    }
    __syncthreads();
  }
}

struct AddTask {
  const float* parts;
  std::uint64_t blocks, size;
  float* out;
  bool is_spoilt;  // then all are NaN
};

template <bool kTransposed>
struct AddBatch {
  BatchStep step;
  float* right;

  static constexpr BatchWork kWork = kTransposed ? BatchWork::right : BatchWork::left;
  __device__ __forceinline__ std::uint64_t size() const {
    return step.batch.works[static_cast<int>(kWork)];
  }
  __device__ __forceinline__ AddTask at(std::uint64_t w, std::uint64_t& own) const {
    const BatchMatrix m = matrix_at(step.batch, kWork, w, own);
    const auto* parts = reinterpret_cast<const float*>(step.scratch);
    if (kTransposed)
      return {parts + m.right_parts, parts_of(m.rows, kBlock), m.columns * m.rank, right + m.right,
              step.is_unsound[m.number] != 0};
    return {parts + m.left_parts, parts_of(m.columns, kBlock), m.rows * m.rank, step.left + m.left,
            false};
  }
};

// out = 0 + part 0 + part 1 + ...
template <class List>
__global__ void __launch_bounds__(kThreads) add_parts(List list) {
  for (std::uint64_t w = blockIdx.x; w < list.size(); w += gridDim.x) {
    std::uint64_t own = 0;
    const AddTask task = list.at(w, own);
    const std::uint64_t i = own * kFactorTile + threadIdx.x;
    if (i >= task.size) continue;
    float sum = 0;
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (std::uint64_t b = 0; b < task.blocks; ++b) sum = sum + task.parts[b * task.size + i];
    task.out[i] = task.is_spoilt ? exact::float_of(exact::kNan) : sum;
  }
}

void add_up(const float* parts, std::uint64_t blocks, std::uint64_t size, float* out,
            Stream stream) {
  const std::uint64_t works = parts_of(size, kFactorTile);
  launch_over(add_parts<SingleList<AddTask>>, works, kThreads, stream,
              SingleList<AddTask>{{parts, blocks, size, out, false}, works});
}

}  // namespace

std::uint64_t product_scratch_bytes(std::uint64_t rows, std::uint64_t columns, std::uint64_t r) {
  const std::uint64_t down = parts_of(columns, kBlock) * rows,
                      across = parts_of(rows, kBlock) * columns;
  return (down > across ? down : across) * r * sizeof(float);
}

void device_multiply(const float* a, std::uint64_t n, std::uint64_t m, const float* q,
                     std::uint64_t r, float* y, std::byte* scratch, Stream stream) {
  auto* parts = reinterpret_cast<float*>(scratch);
  const std::uint64_t blocks = parts_of(m, kBlock);
  const std::uint64_t works = parts_of(n, kRows) * blocks * parts_of(r, kWide);
  launch_over<MultiplyShared>(
      multiply_blocks<SingleList<MultiplyTask>>, works, kThreads, stream,
      SingleList<MultiplyTask>{{a, n, m, q, r, parts, m % 4 == 0 && is_aligned_to(a, 16)}, works});
  add_up(parts, blocks, n * r, y, stream);
}

void device_multiply_transposed(const float* a, std::uint64_t n, std::uint64_t m, const float* p,
                                std::uint64_t r, float* q, std::byte* scratch, Stream stream) {
  auto* parts = reinterpret_cast<float*>(scratch);
  const std::uint64_t blocks = parts_of(n, kBlock);
  const std::uint64_t works = parts_of(m, kColumns) * blocks * parts_of(r, kWide);
  launch_over<TransposedShared>(transposed_blocks<SingleList<TransposedTask>>, works, kColumns,
                                stream, SingleList<TransposedTask>{{a, n, m, p, r, parts}, works});
  add_up(parts, blocks, m * r, q, stream);
}

void batch_multiply(const BatchStep& step, Stream stream) {
  launch_over<MultiplyShared>(multiply_blocks<MultiplyBatch>,
                              works_of(step.batch, BatchWork::multiply), kThreads, stream,
                              MultiplyBatch{step});
  launch_over(add_parts<AddBatch<false>>, works_of(step.batch, BatchWork::left), kThreads, stream,
              AddBatch<false>{step, nullptr});
}

void batch_multiply_transposed(const BatchStep& step, float* right, Stream stream) {
  launch_over<TransposedShared>(transposed_blocks<TransposedBatch>,
                                works_of(step.batch, BatchWork::transposed), kColumns, stream,
                                TransposedBatch{step});
  launch_over(add_parts<AddBatch<true>>, works_of(step.batch, BatchWork::right), kThreads, stream,
              AddBatch<true>{step, right});
}

}  // namespace laconic::kernel
