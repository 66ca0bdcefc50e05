// Rows of a table, and their gradients in the order of the ids.
#include "laconic/model/kernel/device.cuh"
#include "laconic/model/kernel/device.hpp"

namespace laconic::kernel {

namespace {

constexpr int kBlock = 128;
constexpr std::int64_t kRun = 32;  // rows that a thread adds one after the other

template <class T>
__global__ void take(const T* table, const std::int64_t* ids, T* out, std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const T* from = table + ids[row] * width;
  for (std::int64_t at = threadIdx.x * kVector; at < width; at += kBlock * kVector)
    *reinterpret_cast<uint4*>(out + row * width + at) = *reinterpret_cast<const uint4*>(from + at);
}
template <>
__global__ void take(const float* table, const std::int64_t* ids, float* out, std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const float* from = table + ids[row] * width;
  for (std::int64_t at = threadIdx.x * 4; at < width; at += kBlock * 4)
    *reinterpret_cast<uint4*>(out + row * width + at) = *reinterpret_cast<const uint4*>(from + at);
}

__device__ bool begins(const std::int64_t* ids, std::int64_t i) {
  return i == 0 || ids[i - 1] != ids[i];
}

// A run is rows of one id, cut at multiples of kRun; partials[i] is the sum of the run that begins
// at i.
template <class T>
__global__ void sum_runs(const T* gradient, const std::int64_t* ids, const std::int64_t* order,
                         float* partials, std::int64_t count, std::int64_t width) {
  const std::int64_t i = blockIdx.x;
  if (i % kRun != 0 && !begins(ids, i)) return;
  std::int64_t end = (i / kRun + 1) * kRun;
  if (end > count) end = count;
  const std::int64_t id = ids[i];
  for (std::int64_t at = threadIdx.x * kVector; at < width; at += kBlock * kVector) {
    float sum[kVector] = {};
    for (std::int64_t j = i; j < end && ids[j] == id; ++j) {
      float row[kVector];
      load(gradient + order[j] * width + at, row);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum[k] += row[k];
    }
    store(partials + i * width + at, sum);
  }
}

__global__ void add_runs(const std::int64_t* ids, const float* partials, float* sum,
                         std::int64_t count, std::int64_t width) {
  const std::int64_t i = blockIdx.x;
  if (!begins(ids, i)) return;
  const std::int64_t id = ids[i];
  for (std::int64_t at = threadIdx.x * kVector; at < width; at += kBlock * kVector) {
    float total[kVector];
    load(partials + i * width + at, total);
    for (std::int64_t j = (i / kRun + 1) * kRun; j < count && ids[j] == id; j += kRun) {
      float more[kVector];
      load(partials + j * width + at, more);
#pragma unroll
      for (int k = 0; k < kVector; ++k) total[k] += more[k];
    }
    float before[kVector];
    load(sum + id * width + at, before);
#pragma unroll
    for (int k = 0; k < kVector; ++k) before[k] += total[k];
    store(sum + id * width + at, before);
  }
}

}  // namespace

void embedding_forward(Real real, const void* table, const std::int64_t* ids, void* out,
                       std::int64_t count, std::int64_t width, cudaStream_t stream) {
  if (real == Real::bf16)
    take<<<static_cast<unsigned>(count), kBlock, 0, stream>>>(static_cast<const bf16*>(table), ids,
                                                              static_cast<bf16*>(out), width);
  else
    take<<<static_cast<unsigned>(count), kBlock, 0, stream>>>(static_cast<const float*>(table), ids,
                                                              static_cast<float*>(out), width);
}

void embedding_backward(Real real, const void* gradient, const std::int64_t* ids,
                        const std::int64_t* order, float* partials, float* sum, std::int64_t count,
                        std::int64_t width, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(count);
  if (real == Real::bf16)
    sum_runs<<<blocks, kBlock, 0, stream>>>(static_cast<const bf16*>(gradient), ids, order,
                                            partials, count, width);
  else
    sum_runs<<<blocks, kBlock, 0, stream>>>(static_cast<const float*>(gradient), ids, order,
                                            partials, count, width);
  add_runs<<<blocks, kBlock, 0, stream>>>(ids, partials, sum, count, width);
}

}  // namespace laconic::kernel
