// Norms of rows, with the residual sums before them. A row is held in registers by a warp, or by a
// block where it is wide, so that it is read once.
#include "laconic/model/kernel/device.cuh"
#include "laconic/model/kernel/device.hpp"

namespace laconic::kernel {

namespace {

constexpr int kBlock = 128;

// Rows of a block, when `kThreads` share a row.
template <int kThreads>
constexpr int rows_of_block() {
  return kThreads > kBlock ? 1 : kBlock / kThreads;
}
template <int kThreads>
constexpr int threads_of_block() {
  return kThreads > kBlock ? kThreads : kBlock;
}

template <class T, Norm kNorm, int kThreads, int kVectors>
__global__ void __launch_bounds__(threads_of_block<kThreads>())
    forward(NormForward data, std::int64_t rows, int width, float epsilon) {
  __shared__ float shared[threads_of_block<kThreads>() / kWarp];
  const int lane = threadIdx.x % kThreads;
  const std::int64_t row =
      blockIdx.x * static_cast<std::int64_t>(rows_of_block<kThreads>()) + threadIdx.x / kThreads;
  // Rows beyond the last exist only where a row is a warp's own.
  if (row >= rows) return;
  const T* x = static_cast<const T*>(data.x) + row * width;
  const T* residual = static_cast<const T*>(data.residual);
  float values[kVectors][kVector];
  float total = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = (v * kThreads + lane) * kVector;
    if (at >= width) continue;
    load(x + at, values[v]);
    if (residual != nullptr) {
      float more[kVector];
      load(residual + row * width + at, more);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[v][i] += more[i];
      store(static_cast<T*>(data.sum) + row * width + at, values[v]);
      round_as<T>(values[v]);  // backward sees no other
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      total += kNorm == Norm::rms ? values[v][i] * values[v][i] : values[v][i];
  }
  total = group_sum<kThreads>(total, shared);
  float mean = 0, variance = total / width;
  if constexpr (kNorm == Norm::layer) {
    mean = total / width;
    float squares = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * kThreads + lane) * kVector >= width) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float apart = values[v][i] - mean;
        squares += apart * apart;
      }
    }
    variance = group_sum<kThreads>(squares, shared) / width;
  }
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  if (lane == 0) {
    if constexpr (kNorm == Norm::layer) data.means[row] = mean;
    data.inverses[row] = inverse;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = (v * kThreads + lane) * kVector;
    if (at >= width) continue;
    float weight[kVector], bias[kVector], out[kVector];
    load(static_cast<const T*>(data.weight) + at, weight);
    if constexpr (kNorm == Norm::layer) load(static_cast<const T*>(data.bias) + at, bias);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      out[i] = (values[v][i] - mean) * inverse * weight[i];
      if constexpr (kNorm == Norm::layer) out[i] += bias[i];
    }
    store(static_cast<T*>(data.normed) + row * width + at, out);
  }
}

// A block takes every gridDim-th group of rows, and adds up what they give to weight and bias in
// registers: a thread always has the same columns.
template <class T, Norm kNorm, int kThreads, int kVectors>
__global__ void __launch_bounds__(threads_of_block<kThreads>())
    backward(NormBackward data, std::int64_t rows, int width) {
  constexpr int kRows = rows_of_block<kThreads>();
  extern __shared__ float columns[];  // width, and once more for a bias
  __shared__ float shared[threads_of_block<kThreads>() / kWarp];
  const int lane = threadIdx.x % kThreads, group = threadIdx.x / kThreads;
  float weight_sum[kVectors][kVector] = {}, bias_sum[kVectors][kVector] = {};
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kRows); first < rows;
       first += gridDim.x * static_cast<std::int64_t>(kRows)) {
    const std::int64_t row = first + group;
    if (row >= rows) continue;  // a warp's own, or there is one group
    const float mean = kNorm == Norm::layer ? data.means[row] : 0;
    const float inverse = data.inverses[row];
    float scaled[kVectors][kVector], normal[kVectors][kVector];
    float sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = (v * kThreads + lane) * kVector;
      if (at >= width) continue;
      float gradient[kVector], weight[kVector];
      load(static_cast<const T*>(data.gradient) + row * width + at, gradient);
      load(static_cast<const T*>(data.x) + row * width + at, normal[v]);
      load(static_cast<const T*>(data.weight) + at, weight);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        normal[v][i] = (normal[v][i] - mean) * inverse;
        scaled[v][i] = gradient[i] * weight[i];
        sum += scaled[v][i];
        product += scaled[v][i] * normal[v][i];
        weight_sum[v][i] += gradient[i] * normal[v][i];
        if constexpr (kNorm == Norm::layer) bias_sum[v][i] += gradient[i];
      }
    }
    product = group_sum<kThreads>(product, shared) / width;
    sum = kNorm == Norm::layer ? group_sum<kThreads>(sum, shared) / width : 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = (v * kThreads + lane) * kVector;
      if (at >= width) continue;
      float out[kVector] = {};
      if (data.beside != nullptr) load(static_cast<const T*>(data.beside) + row * width + at, out);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        out[i] += inverse * (scaled[v][i] - sum - normal[v][i] * product);
      store(static_cast<T*>(data.dx) + row * width + at, out);
    }
  }
  // The groups of a block one after the other.
  for (int turn = 0; turn < kRows; ++turn) {
    if (group == turn) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int at = (v * kThreads + lane) * kVector;
        if (at >= width) continue;
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          columns[at + i] = (turn == 0 ? 0 : columns[at + i]) + weight_sum[v][i];
          if constexpr (kNorm == Norm::layer)
            columns[width + at + i] = (turn == 0 ? 0 : columns[width + at + i]) + bias_sum[v][i];
        }
      }
    }
    __syncthreads();
  }
  float* weights = data.partials + static_cast<std::int64_t>(blockIdx.x) * width;
  float* biases = weights + static_cast<std::int64_t>(gridDim.x) * width;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    weights[c] = columns[c];
    if constexpr (kNorm == Norm::layer) biases[c] = columns[width + c];
  }
}

constexpr int kColumnsOfBlock = 32, kPartsAtOnce = 16;

__global__ void add_parts(const float* partials, std::int64_t parts, std::int64_t columns,
                          float* sum, bool is_first) {
  __shared__ float shared[kPartsAtOnce][kColumnsOfBlock + 1];
  const std::int64_t column = blockIdx.x * static_cast<std::int64_t>(kColumnsOfBlock) + threadIdx.x;
  float total = 0;
  if (column < columns)
    for (std::int64_t p = threadIdx.y; p < parts; p += kPartsAtOnce)
      total += partials[p * columns + column];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  total = 0;
#pragma unroll
  for (int p = 0; p < kPartsAtOnce; ++p) total += shared[p][threadIdx.x];
  sum[column] = is_first ? total : sum[column] + total;
}

// Calls `launch` with the number of threads that share a row, and of vectors that each holds.
template <class Launch>
void for_width(int width, const Launch& launch) {
  using std::integral_constant;
  const auto call = [&](auto threads, auto vectors) { launch(threads, vectors); };
  if (width <= 256) return call(integral_constant<int, 32>(), integral_constant<int, 1>());
  if (width <= 512) return call(integral_constant<int, 32>(), integral_constant<int, 2>());
  if (width <= 768) return call(integral_constant<int, 32>(), integral_constant<int, 3>());
  if (width <= 1024) return call(integral_constant<int, 32>(), integral_constant<int, 4>());
  if (width <= 2048) return call(integral_constant<int, 128>(), integral_constant<int, 2>());
  if (width <= 4096) return call(integral_constant<int, 256>(), integral_constant<int, 2>());
  return call(integral_constant<int, 256>(), integral_constant<int, 4>());
}

template <class Launch>
void for_type(const NormShape& shape, const Launch& launch) {
  using std::integral_constant;
  const auto with = [&](auto type) {
    if (shape.norm == Norm::layer)
      launch(type, integral_constant<Norm, Norm::layer>());
    else
      launch(type, integral_constant<Norm, Norm::rms>());
  };
  if (shape.real == Real::bf16)
    with(bf16());
  else
    with(float());
}

int rows_at_once(int width) {
  int rows = 1;
  for_width(width, [&](auto threads, auto) { rows = rows_of_block<threads.value>(); });
  return rows;
}

constexpr std::int64_t kMostParts = 132 * 4;

// More than 48 KiB of a block must be asked for, and what a kernel declares itself (a float for
// each warp here) counts as well.
template <class Kernel>
bool may_share(Kernel kernel, std::size_t bytes, int threads) {
  constexpr std::size_t kUnasked = 48 * 1024;
  const std::size_t own = sizeof(float) * static_cast<std::size_t>(threads / kWarp);
  return bytes + own <= kUnasked ||
         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes)) == cudaSuccess;
}

}  // namespace

void add_partials(const float* partials, std::int64_t parts, std::int64_t columns, float* sum,
                  bool is_first, cudaStream_t stream) {
  add_parts<<<blocks_for(columns, kColumnsOfBlock), dim3(kColumnsOfBlock, kPartsAtOnce), 0,
              stream>>>(partials, parts, columns, sum, is_first);
}

void norm_forward(const NormShape& shape, const NormForward& data, cudaStream_t stream) {
  for_type(shape, [&](auto type, auto norm) {
    for_width(shape.width, [&](auto threads, auto vectors) {
      constexpr int kThreads = threads.value;
      forward<decltype(type), norm.value, kThreads, vectors.value>
          <<<blocks_for(shape.rows, rows_of_block<kThreads>()), threads_of_block<kThreads>(), 0,
             stream>>>(data, shape.rows, shape.width, shape.epsilon);
    });
  });
}

std::int64_t norm_parts(const NormShape& shape) {
  const std::int64_t all = blocks_for(shape.rows, rows_at_once(shape.width));
  return all < kMostParts ? all : kMostParts;
}

void norm_backward(const NormShape& shape, const NormBackward& data, cudaStream_t stream) {
  const auto parts = static_cast<int>(norm_parts(shape));
  bool is_asked = true;
  for_type(shape, [&](auto type, auto norm) {
    for_width(shape.width, [&](auto threads, auto vectors) {
      constexpr int kThreads = threads.value;
      constexpr int kSums = norm.value == Norm::layer ? 2 : 1;
      const auto kernel = backward<decltype(type), norm.value, kThreads, vectors.value>;
      const std::size_t shared = kSums * sizeof(float) * static_cast<std::size_t>(shape.width);
      is_asked = may_share(kernel, shared, threads_of_block<kThreads>());
      if (is_asked)
        kernel<<<parts, threads_of_block<kThreads>(), shared, stream>>>(data, shape.rows,
                                                                        shape.width);
    });
  });
  if (!is_asked) return;  // as the last error says
  add_partials(data.partials, parts, shape.width, data.weight_sum, data.weight_is_first, stream);
  if (shape.norm == Norm::layer)
    add_partials(data.partials + static_cast<std::int64_t>(parts) * shape.width, parts, shape.width,
                 data.bias_sum, data.bias_is_first, stream);
}

}  // namespace laconic::kernel
