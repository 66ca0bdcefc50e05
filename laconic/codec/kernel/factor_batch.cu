// The three phases of kernel/factor_batch.hpp, and what in them goes element by element.
#include "laconic/codec/kernel/factor_batch.hpp"

#include <type_traits>

#include "laconic/codec/kernel/batch.cuh"

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;

// use(i) for the elements of this thread in piece `own` of so many.
template <std::uint64_t kTile = kBatchTile, class Use>
__device__ __forceinline__ void for_each_of(std::uint64_t own, std::uint64_t count,
                                            const Use& use) {
  LACONIC_UNROLL_ALL
  for (unsigned k = 0; k < kTile / kThreads; ++k) {
    const std::uint64_t i = own * kTile + k * kThreads + threadIdx.x;
    if (i < count) use(i);
  }
}

// inputs = gradients + residuals. Without a residual the bits are the gradient's: + 0 would change
// the sign of a zero.
__global__ void __launch_bounds__(kThreads) add_residuals(BatchStep step) {
  for (std::uint64_t w = blockIdx.x; w < step.batch.works[static_cast<int>(BatchWork::inputs)];
       w += gridDim.x) {
    std::uint64_t own = 0;
    const BatchMatrix m = matrix_at(step.batch, BatchWork::inputs, w, own);
    const bool has_residual = step.has_residual[m.number] != 0;
    const float* before = step.residuals + m.input;
    float* to = step.inputs + m.input;
    for_each_of(own, m.rows * m.columns, [&](std::uint64_t i) {
      to[i] = has_residual ? exact::sum_of(m.gradient[i], before[i]) : m.gradient[i];
    });
  }
}

template <BatchWork kWork>
__global__ void __launch_bounds__(kThreads) find_unsound(BatchStep step, const float* factors) {
  for (std::uint64_t w = blockIdx.x; w < step.batch.works[static_cast<int>(kWork)];
       w += gridDim.x) {
    std::uint64_t own = 0;
    const BatchMatrix m = matrix_at(step.batch, kWork, w, own);
    const bool is_left = kWork == BatchWork::left;
    const float* x = factors + (is_left ? m.left : m.right);
    bool found = false;
    for_each_of<kFactorTile>(own, (is_left ? m.rows : m.columns) * m.rank,
                             [&](std::uint64_t i) { found |= !exact::is_finite(x[i]); });
    if (found) step.is_unsound[m.number] = 1;
  }
}

// A division is not the product with a reciprocal.
__global__ void __launch_bounds__(kThreads)
    divide(const float* in, std::uint64_t count, float divisor, float* out) {
  for (std::uint64_t i = thread_number(); i < count; i += thread_total()) out[i] = in[i] / divisor;
}

__global__ void __launch_bounds__(kThreads) tell_what_is_kept(BatchStep step) {
  for (std::uint64_t k = thread_number(); k < step.batch.count; k += thread_total()) {
    const bool is_sound = step.is_unsound[k] == 0;
    step.next_has_basis[k] = is_sound ? 1 : 0;
    step.next_has_residual[k] =
        step.inputs != nullptr && (is_sound || step.has_residual[k] != 0) ? 1 : 0;
  }
}

// Float: float gathers the pieces, const float puts them back.
template <class Float>
__global__ void __launch_bounds__(kThreads) copy_pieces(FactorBatch batch, Float* raw) {
  for (std::uint64_t w = blockIdx.x; w < batch.piece_works; w += gridDim.x) {
    const std::uint64_t k = owner_of(batch.first_piece, batch.piece_count, w);
    const BatchPiece& piece = batch.pieces[k];
    Float* flat = raw + piece.offset;
    for_each_of(w - batch.first_piece[k], piece.elements, [&](std::uint64_t i) {
      if constexpr (std::is_const_v<Float>)
        piece.gradient[i] = flat[i];
      else
        flat[i] = piece.gradient[i];
    });
  }
}

template <BatchWork kWork>
void check_factors(const BatchStep& step, const float* factors, Stream stream) {
  launch_over(find_unsound<kWork>, works_of(step.batch, kWork), kThreads, stream, step, factors);
}

}  // namespace

void device_begin_factors(const BatchStep& step, float* raw, Stream stream) {
  launch_over(copy_pieces<float>, step.batch.piece_works, kThreads, stream, step.batch, raw);
  if (step.batch.count == 0) return;
  device_clear(step.is_unsound, step.batch.count * sizeof(std::uint32_t), stream);
  if (step.inputs != nullptr)
    launch_over(add_residuals, works_of(step.batch, BatchWork::inputs), kThreads, stream, step);
  batch_orthonormalise_start(step, stream);
  batch_multiply(step, stream);
}

void device_project_factors(const BatchStep& step, float* right, Stream stream) {
  if (step.batch.count == 0) return;
  check_factors<BatchWork::left>(step, step.left, stream);
  batch_orthonormalise_left(step, stream);
  batch_multiply_transposed(step, right, stream);
}

void device_finish_factors(const BatchStep& step, const float* raw, const float* right,
                           std::uint64_t right_count, Stream stream) {
  launch_over(copy_pieces<const float>, step.batch.piece_works, kThreads, stream, step.batch, raw);
  if (step.batch.count == 0) return;
  check_factors<BatchWork::right>(step, right, stream);
  launch_over(divide, parts_of(right_count, kThreads), kThreads, stream, right, right_count,
              step.members, step.next_basis);
  batch_expand(step, stream);
  launch_over(tell_what_is_kept, parts_of(step.batch.count, kThreads), kThreads, stream, step);
}

}  // namespace laconic::kernel
