// Products with thin matrices, each sum a chain in the order of codec/kernel/matrix.hpp: blocks of
// 256 terms from zero, then the blocks in order. Blocks of terms are independent, so each is a
// piece of work of its own, and a second pass adds their sums.
#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/matrix.hpp"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWide = 16;          // columns of the thin matrix at a time
constexpr unsigned kBlock = kSumBlock;  // terms of a chain

#ifdef __CUDACC__
#define LACONIC_UNROLL_ALL _Pragma("unroll")
#else
#define LACONIC_UNROLL_ALL
#endif

// --- y = a q. A block of threads takes 128 rows and one block of terms, 32 terms at a time through
// shared memory; a thread has one row and 8 of 16 columns.

constexpr unsigned kRows = 128;
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

__global__ void __launch_bounds__(kThreads) multiply_blocks(MultiplyTask task) {
  auto& shared = shared_memory<MultiplyShared>();
  const std::uint64_t row_tiles = parts_of(task.n, kRows), blocks = parts_of(task.m, kBlock);
  const std::uint64_t tiles = parts_of(task.r, kWide);
  const unsigned row = threadIdx.x % kRows, half = threadIdx.x / kRows * 8;
  for (std::uint64_t w = blockIdx.x; w < row_tiles * blocks * tiles; w += gridDim.x) {
    const std::uint64_t i0 = w % row_tiles * kRows, block = w / row_tiles % blocks;
    const std::uint64_t c0 = w / row_tiles / blocks * kWide;
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

constexpr unsigned kColumns = 128;

__global__ void __launch_bounds__(kColumns) transposed_blocks(TransposedTask task) {
  auto& shared = shared_memory<TransposedShared>();
  const std::uint64_t column_tiles = parts_of(task.m, kColumns), blocks = parts_of(task.n, kBlock);
  const std::uint64_t tiles = parts_of(task.r, kWide);
  for (std::uint64_t w = blockIdx.x; w < column_tiles * blocks * tiles; w += gridDim.x) {
    const std::uint64_t j = w % column_tiles * kColumns + threadIdx.x;
    const std::uint64_t block = w / column_tiles % blocks, i0 = block * kBlock;
    const std::uint64_t c0 = w / column_tiles / blocks * kWide;
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

// out = 0 + part 0 + part 1 + ...
__global__ void __launch_bounds__(kThreads)
    add_parts(const float* parts, std::uint64_t blocks, std::uint64_t size, float* out) {
  for (std::uint64_t i = thread_number(); i < size; i += thread_total()) {
    float sum = 0;
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (std::uint64_t b = 0; b < blocks; ++b) sum = sum + parts[b * size + i];
    out[i] = sum;
  }
}

// --- p q^T. A block of threads makes 16 rows of 128 columns; a thread has a column of the result.

constexpr unsigned kExpandRows = 16;

struct ExpandShared {
  float p[kWide][kExpandRows];
  float q[kWide][kColumns + 1];
};

struct ExpandTask {
  const float* p;
  std::uint64_t n;
  const float* q;
  std::uint64_t m, r;
  SinkView sink;
};

// One term of all sums of a thread; the first product is the sum.
template <bool kFirst>
__device__ __forceinline__ void add_term(const ExpandShared& shared, unsigned c,
                                         float (&sum)[kExpandRows]) {
  const float y = shared.q[c][threadIdx.x];
  LACONIC_UNROLL_ALL
  for (unsigned i = 0; i < kExpandRows; ++i) {
    const float product = shared.p[c][i] * y;
    sum[i] = kFirst ? product : sum[i] + product;
  }
}

// kFloats: stores f32, and nothing else.
template <bool kFloats>
__global__ void __launch_bounds__(kColumns) expand(ExpandTask task) {
  auto& shared = shared_memory<ExpandShared>();
  const std::uint64_t column_tiles = parts_of(task.m, kColumns);
  const std::uint64_t row_tiles = parts_of(task.n, kExpandRows);
  for (std::uint64_t w = blockIdx.x; w < column_tiles * row_tiles; w += gridDim.x) {
    const std::uint64_t j0 = w % column_tiles * kColumns, i0 = w / column_tiles * kExpandRows;
    float sum[kExpandRows];
    for (std::uint64_t c0 = 0; c0 < task.r; c0 += kWide) {
      __syncthreads();
      const unsigned wide = task.r - c0 < kWide ? static_cast<unsigned>(task.r - c0) : kWide;
      for (unsigned k = threadIdx.x; k < kExpandRows * kWide; k += kColumns) {
        const unsigned c = k % kWide, i = k / kWide;
        shared.p[c][i] = c < wide && i0 + i < task.n ? task.p[(i0 + i) * task.r + c0 + c] : 0;
      }
      for (unsigned k = threadIdx.x; k < kColumns * kWide; k += kColumns) {
        const unsigned c = k % kWide, j = k / kWide;
        shared.q[c][j] = c < wide && j0 + j < task.m ? task.q[(j0 + j) * task.r + c0 + c] : 0;
      }
      __syncthreads();
      if (c0 == 0)
        add_term<true>(shared, 0, sum);
      else
        add_term<false>(shared, 0, sum);
      if (wide == kWide) {
        LACONIC_UNROLL_ALL
        for (unsigned c = 1; c < kWide; ++c) add_term<false>(shared, c, sum);
      } else {
        for (unsigned c = 1; c < wide; ++c) add_term<false>(shared, c, sum);
      }
    }
    const std::uint64_t j = j0 + threadIdx.x;
    if (j >= task.m) continue;
    const unsigned rows =
        task.n - i0 < kExpandRows ? static_cast<unsigned>(task.n - i0) : kExpandRows;
    LACONIC_UNROLL_ALL
    for (unsigned i = 0; i < kExpandRows; ++i) {
      if (i >= rows) break;
      const std::uint64_t to = (i0 + i) * task.m + j;
      if constexpr (kFloats)
        static_cast<float*>(task.sink.sink.out)[to] = exact::canonical(sum[i]);
      else
        deliver_one(task.sink, to, exact::canonical(sum[i]));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    transpose(const float* in, std::uint64_t rows, std::uint64_t columns, float* out) {
  for (std::uint64_t i = thread_number(); i < rows * columns; i += thread_total())
    out[i] = in[i % rows * columns + i / rows];
}

void add_up(const float* parts, std::uint64_t blocks, std::uint64_t size, float* out,
            Stream stream) {
  launch_over(add_parts, parts_of(size, kThreads), kThreads, stream, parts, blocks, size, out);
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
  launch_over<MultiplyShared>(
      multiply_blocks, parts_of(n, kRows) * blocks * parts_of(r, kWide), kThreads, stream,
      MultiplyTask{a, n, m, q, r, parts, m % 4 == 0 && is_aligned_to(a, 16)});
  add_up(parts, blocks, n * r, y, stream);
}

void device_multiply_transposed(const float* a, std::uint64_t n, std::uint64_t m, const float* p,
                                std::uint64_t r, float* q, std::byte* scratch, Stream stream) {
  auto* parts = reinterpret_cast<float*>(scratch);
  const std::uint64_t blocks = parts_of(n, kBlock);
  launch_over<TransposedShared>(transposed_blocks,
                                parts_of(m, kColumns) * blocks * parts_of(r, kWide), kColumns,
                                stream, TransposedTask{a, n, m, p, r, parts});
  add_up(parts, blocks, m * r, q, stream);
}

void device_multiply_factors(const float* p, std::uint64_t n, const float* q, std::uint64_t m,
                             std::uint64_t r, const DeviceSink& sink, Stream stream) {
  const bool is_floats = sink.kind == Delivery::store && sink.dtype == Dtype::f32;
  launch_over<ExpandShared>(is_floats ? expand<true> : expand<false>,
                            parts_of(m, kColumns) * parts_of(n, kExpandRows), kColumns, stream,
                            ExpandTask{p, n, q, m, r, view_of(sink)});
}

void device_transpose(const float* in, std::uint64_t rows, std::uint64_t columns, float* out,
                      Stream stream) {
  launch_over(transpose, parts_of(rows * columns, kThreads), kThreads, stream, in, rows, columns,
              out);
}

}  // namespace laconic::kernel
