// codec/kernel/batch.cuh — lists of work for kernels: one matrix, or the table of a batch.
//
// A kernel strides over a list's work: size() pieces, of which at() says whose a piece is and which
// piece of its own. The one matrix of a codec comes as an argument, so nothing has to be uploaded.
#pragma once

#include "laconic/codec/kernel/access.cuh"
#include "laconic/codec/kernel/factor_batch.hpp"

#ifdef __CUDACC__
#define LACONIC_UNROLL_ALL _Pragma("unroll")
#define LACONIC_UNROLL_FOUR _Pragma("unroll 4")
#else
#define LACONIC_UNROLL_ALL
#define LACONIC_UNROLL_FOUR
#endif

namespace laconic::kernel {

template <class Task>
struct SingleList {
  Task task;
  std::uint64_t works;

  __device__ __forceinline__ std::uint64_t size() const { return works; }
  __device__ __forceinline__ Task at(std::uint64_t w, std::uint64_t& own) const {
    own = w;
    return task;
  }
};

// The last k with first[k] <= w: without work, matrices have none that could be found.
__device__ __forceinline__ std::uint64_t owner_of(const std::uint64_t* first, std::uint64_t count,
                                                  std::uint64_t w) {
  std::uint64_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    (first[middle] <= w ? low : high) = middle;
  }
  return low;
}

__device__ __forceinline__ const BatchMatrix& matrix_at(const FactorBatch& batch, BatchWork work,
                                                        std::uint64_t w, std::uint64_t& own) {
  const std::uint64_t* first = batch.first + static_cast<std::size_t>(work) * (batch.count + 1);
  const std::uint64_t k = owner_of(first, batch.count, w);
  own = w - first[k];
  return batch.matrices[k];
}

inline std::uint64_t works_of(const FactorBatch& batch, BatchWork work) {
  return batch.works[static_cast<std::size_t>(work)];
}

// A: what is sent of a matrix.
__device__ __forceinline__ const float* input_of(const BatchStep& step, const BatchMatrix& m) {
  return step.inputs != nullptr ? step.inputs + m.input : m.gradient;
}

}  // namespace laconic::kernel
