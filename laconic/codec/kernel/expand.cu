// P Q^T, each sum a chain in the order of codec/kernel/matrix.hpp. A block of threads makes 16 rows
// of 128 columns; a thread has a column of the result.
#include "laconic/codec/kernel/batch.cuh"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWide = kProductWide;
constexpr unsigned kColumns = kTransposedColumns;

struct ExpandShared {
  float p[kWide][kExpandRows];
  float q[kWide][kColumns + 1];
};

struct FactorPair {
  const float* p;
  std::uint64_t n;
  const float* q;
  std::uint64_t m, r;
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

// The elements of a thread in piece `own` of the result: some rows of a column.
struct ExpandPlace {
  std::uint64_t i0, j0;
  std::uint64_t first;  // index of the first
  unsigned rows;        // 0: the column is not there
};
__device__ __forceinline__ ExpandPlace place_of(const FactorPair& pair, std::uint64_t own) {
  const std::uint64_t column_tiles = parts_of(pair.m, kColumns);
  const std::uint64_t j0 = own % column_tiles * kColumns, i0 = own / column_tiles * kExpandRows;
  const unsigned rows =
      pair.n - i0 < kExpandRows ? static_cast<unsigned>(pair.n - i0) : kExpandRows;
  const std::uint64_t j = j0 + threadIdx.x;
  return {i0, j0, i0 * pair.m + j, j < pair.m ? rows : 0};
}

__device__ __forceinline__ void expand_tile(const FactorPair& pair, const ExpandPlace& place,
                                            float (&sum)[kExpandRows]) {
  auto& shared = shared_memory<ExpandShared>();
  for (std::uint64_t c0 = 0; c0 < pair.r; c0 += kWide) {
    __syncthreads();
    const unsigned wide = pair.r - c0 < kWide ? static_cast<unsigned>(pair.r - c0) : kWide;
    for (unsigned k = threadIdx.x; k < kExpandRows * kWide; k += kColumns) {
      const unsigned c = k % kWide;
      const std::uint64_t i = place.i0 + k / kWide;
      shared.p[c][k / kWide] = c < wide && i < pair.n ? pair.p[i * pair.r + c0 + c] : 0;
    }
    for (unsigned k = threadIdx.x; k < kColumns * kWide; k += kColumns) {
      const unsigned c = k % kWide;
      const std::uint64_t j = place.j0 + k / kWide;
      shared.q[c][k / kWide] = c < wide && j < pair.m ? pair.q[j * pair.r + c0 + c] : 0;
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
}

// kFloats: stores f32, and nothing else.
template <bool kFloats>
__global__ void __launch_bounds__(kColumns)
    expand(FactorPair pair, std::uint64_t works, SinkView sink) {
  for (std::uint64_t w = blockIdx.x; w < works; w += gridDim.x) {
    const ExpandPlace place = place_of(pair, w);
    float sum[kExpandRows];
    expand_tile(pair, place, sum);
    LACONIC_UNROLL_ALL
    for (unsigned i = 0; i < kExpandRows; ++i) {
      if (i >= place.rows) break;
      const std::uint64_t to = place.first + i * pair.m;
      if constexpr (kFloats)
        static_cast<float*>(sink.sink.out)[to] = exact::canonical(sum[i]);
      else
        deliver_one(sink, to, exact::canonical(sum[i]));
    }
  }
}

// What is sent, or of an unsound matrix the residual that it keeps: what a thread needs of it, on
// its way while the products are made.
__device__ __forceinline__ void load_before(const BatchStep& step, const BatchMatrix& m,
                                            const ExpandPlace& place, bool is_unsound,
                                            float (&before)[kExpandRows]) {
  const bool is_there = step.inputs != nullptr && (!is_unsound || step.has_residual[m.number] != 0);
  const float* from =
      is_there ? (is_unsound ? step.residuals : step.inputs) + m.input + place.first : nullptr;
  LACONIC_UNROLL_ALL
  for (unsigned i = 0; i < kExpandRows; ++i)
    before[i] = is_there && i < place.rows ? from[i * m.columns] : 0;
}

// The end of a step: the sum of the members for everybody, the residual for this one. Factors are
// finite, so that a NaN among the products is one that an x86 makes.
__global__ void __launch_bounds__(kColumns) expand_batch(BatchStep step) {
  for (std::uint64_t w = blockIdx.x; w < step.batch.works[static_cast<int>(BatchWork::expand)];
       w += gridDim.x) {
    std::uint64_t own = 0;
    const BatchMatrix m = matrix_at(step.batch, BatchWork::expand, w, own);
    const bool is_unsound = step.is_unsound[m.number] != 0;
    const FactorPair pair{step.left + m.left, m.rows, step.next_basis + m.right, m.columns, m.rank};
    const ExpandPlace place = place_of(pair, own);
    float before[kExpandRows], sum[kExpandRows];
    load_before(step, m, place, is_unsound, before);
    expand_tile(pair, place, sum);
    LACONIC_UNROLL_ALL
    for (unsigned i = 0; i < kExpandRows; ++i) {
      if (i >= place.rows) break;
      const std::uint64_t to = place.first + i * pair.m;
      const bool is_nan = exact::is_nan(sum[i]);
      const float mean = is_nan ? exact::float_of(exact::kSignBit | exact::kNan) : sum[i];
      const float total = is_nan ? mean : mean * step.members;
      m.gradient[to] = is_unsound ? exact::float_of(exact::kNan) : total;
      if (step.inputs != nullptr)
        step.inputs[m.input + to] = is_unsound ? before[i] : exact::difference_of(before[i], mean);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    transpose(const float* in, std::uint64_t rows, std::uint64_t columns, float* out) {
  for (std::uint64_t i = thread_number(); i < rows * columns; i += thread_total())
    out[i] = in[i % rows * columns + i / rows];
}

}  // namespace

void device_multiply_factors(const float* p, std::uint64_t n, const float* q, std::uint64_t m,
                             std::uint64_t r, const DeviceSink& sink, Stream stream) {
  const bool is_floats = sink.kind == Delivery::store && sink.dtype == Dtype::f32;
  const std::uint64_t works = parts_of(m, kColumns) * parts_of(n, kExpandRows);
  launch_over<ExpandShared>(is_floats ? expand<true> : expand<false>, works, kColumns, stream,
                            FactorPair{p, n, q, m, r}, works, view_of(sink));
}

void batch_expand(const BatchStep& step, Stream stream) {
  launch_over<ExpandShared>(expand_batch, works_of(step.batch, BatchWork::expand), kColumns, stream,
                            step);
}

void device_transpose(const float* in, std::uint64_t rows, std::uint64_t columns, float* out,
                      Stream stream) {
  launch_over(transpose, parts_of(rows * columns, kThreads), kThreads, stream, in, rows, columns,
              out);
}

}  // namespace laconic::kernel
