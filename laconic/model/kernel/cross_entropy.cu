// The loss of rows of logits, and their gradients in place. A block has a row.
#include <cmath>

#include "laconic/base/target.hpp"
#include "laconic/model/kernel/device.cuh"
#include "laconic/model/kernel/device.hpp"

namespace laconic::kernel {

namespace {

constexpr int kBlock = 512;
constexpr int kWarps = kBlock / kWarp;

// The largest of some numbers, and the sum of exp(x - largest).
struct Softmax {
  float largest = -INFINITY;
  float sum = 0;

  __device__ void add(Softmax other) {
    const float top = fmaxf(largest, other.largest);
    if (top == -INFINITY) return;  // nothing yet, on both sides
    sum = sum * expf(largest - top) + other.sum * expf(other.largest - top);
    largest = top;
  }
};

template <class T>
__global__ void __launch_bounds__(kBlock)
    losses_of_rows(CrossEntropy task, const T* logits, float* log_sums, float* losses) {
  __shared__ float tops[kWarps], sums[kWarps], totals[kWarps];
  // The last rows are the likeliest to be in the cache still.
  const std::int64_t row = task.rows - 1 - blockIdx.x;
  const std::int64_t target = task.targets[row];
  if (target == kNoTarget) {
    if (threadIdx.x == 0) log_sums[row] = losses[row] = 0;
    return;
  }
  const T* x = logits + row * task.stride;
  Softmax mine;
  float total = 0;
  for (std::int64_t at = threadIdx.x * kVector; at < task.vocabulary; at += kBlock * kVector) {
    float values[kVector];
    load(x + at, values);
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (at + i >= task.vocabulary)
        values[i] = -INFINITY;
      else
        total += values[i];
      top = fmaxf(top, values[i]);
    }
    if (top > mine.largest) {
      mine.sum *= expf(mine.largest - top);
      mine.largest = top;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) mine.sum += __expf(values[i] - mine.largest);
  }
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    Softmax other;
    other.largest = __shfl_xor_sync(0xffffffffu, mine.largest, apart);
    other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, apart);
    mine.add(other);
  }
  total = warp_sum(total);
  if (threadIdx.x % kWarp == 0) {
    tops[threadIdx.x / kWarp] = mine.largest;
    sums[threadIdx.x / kWarp] = mine.sum;
    totals[threadIdx.x / kWarp] = total;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    mine.add({tops[w], sums[w]});
    total += totals[w];
  }
  const float log_sum = mine.largest + logf(mine.sum);
  log_sums[row] = log_sum;
  const bool is_known = target >= 0 && target < task.vocabulary;
  const float smoothing = static_cast<float>(task.smoothing);
  float loss = is_known ? (1 - smoothing) * (log_sum - as_float(x[target])) : NAN;
  if (smoothing > 0) loss += smoothing * (log_sum - total / static_cast<float>(task.vocabulary));
  losses[row] = loss;
}

__global__ void __launch_bounds__(1024)
    mean_of(const float* losses, std::int64_t rows, float* mean) {
  __shared__ double sums[1024 / kWarp];
  double total = 0;
  for (std::int64_t r = threadIdx.x; r < rows; r += 1024) total += losses[r];
  total = warp_sum(total);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < 1024 / kWarp; ++w) total += sums[w];
  *mean = static_cast<float>(total / static_cast<double>(rows));
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    gradients(CrossEntropy task, T* logits, const float* log_sums, const float* gradient) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = task.targets[row];
  const float scale = target == kNoTarget ? 0 : *gradient / static_cast<float>(task.rows);
  const float log_sum = log_sums[row];
  const float smoothing = static_cast<float>(task.smoothing);
  const float everywhere = smoothing / static_cast<float>(task.vocabulary);
  T* x = logits + row * task.stride;
  for (std::int64_t at = threadIdx.x * kVector; at < task.stride; at += kBlock * kVector) {
    float values[kVector] = {};
    if (target != kNoTarget && at < task.vocabulary) {
      load(x + at, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float p = __expf(values[i] - log_sum) - everywhere;
        values[i] = scale * (at + i == target ? p - (1 - smoothing) : p);
        if (at + i >= task.vocabulary) values[i] = 0;
      }
    }
    store(x + at, values);
  }
}

}  // namespace

void cross_entropy_forward(const CrossEntropy& task, const void* logits, float* log_sums,
                           float* row_losses, float* loss, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(task.rows);
  if (task.real == Real::bf16)
    losses_of_rows<<<rows, kBlock, 0, stream>>>(task, static_cast<const bf16*>(logits), log_sums,
                                                row_losses);
  else
    losses_of_rows<<<rows, kBlock, 0, stream>>>(task, static_cast<const float*>(logits), log_sums,
                                                row_losses);
  mean_of<<<1, 1024, 0, stream>>>(row_losses, task.rows, loss);
}

void cross_entropy_backward(const CrossEntropy& task, void* logits, const float* log_sums,
                            const float* gradient, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(task.rows);
  if (task.real == Real::bf16)
    gradients<<<rows, kBlock, 0, stream>>>(task, static_cast<bf16*>(logits), log_sums, gradient);
  else
    gradients<<<rows, kBlock, 0, stream>>>(task, static_cast<float*>(logits), log_sums, gradient);
}

}  // namespace laconic::kernel
