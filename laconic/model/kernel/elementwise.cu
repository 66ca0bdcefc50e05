// Activations, rotation, dropout, and sums of rows: one pass each.
#include "laconic/model/kernel/device.cuh"
#include "laconic/model/kernel/device.hpp"

namespace laconic::kernel {

namespace {

constexpr int kBlock = 256;

__device__ float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

// By tanh, as x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kTwoRoots = 2 * 0.7978845608028654f, kCubic = 0.044715f;
__device__ float gelu_tanh(float x) {
  return x * sigmoid(kTwoRoots * (x + kCubic * x * x * x));
}
__device__ float gelu_tanh_slope(float x) {
  const float s = sigmoid(kTwoRoots * (x + kCubic * x * x * x));
  return s + x * s * (1.0f - s) * kTwoRoots * (1.0f + 3.0f * kCubic * x * x);
}
__device__ float gelu_erf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
}
__device__ float gelu_erf_slope(float x) {
  return 0.5f * (1.0f + erff(x * 0.7071067811865476f)) +
         x * 0.3989422804014327f * expf(-0.5f * x * x);
}

template <class T, bool is_exact>
__global__ void gelu(const T* x, T* y, std::int64_t vectors) {
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x;
  if (at >= vectors) return;
  float values[kVector];
  load(x + at * kVector, values);
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    values[i] = is_exact ? gelu_erf(values[i]) : gelu_tanh(values[i]);
  store(y + at * kVector, values);
}

// A warp has 256 columns, a block eight rows of these at a time.
constexpr int kColumnsOfBlock = kWarp * kVector, kRowsAtOnce = kBlock / kWarp;

enum class Before { nothing, gelu, exact_gelu };

// Writes what is added, unless that is x itself.
template <class T, Before kBefore>
__global__ void sum_rows(const T* x, const T* gradient, T* dx, RowSum data) {
  __shared__ float shared[kRowsAtOnce][kColumnsOfBlock];
  const std::int64_t column =
      blockIdx.x * static_cast<std::int64_t>(kColumnsOfBlock) + threadIdx.x * kVector;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kRowsAtOnce;
  float sums[kVector] = {};
  if (column < data.columns)
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kRowsAtOnce + threadIdx.y;
         row < data.rows; row += step) {
      const std::int64_t at = row * data.columns + column;
      float values[kVector];
      load(x + at, values);
      if constexpr (kBefore != Before::nothing) {
        float above[kVector];
        load(gradient + at, above);
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          values[i] = above[i] * (kBefore == Before::gelu ? gelu_tanh_slope(values[i])
                                                          : gelu_erf_slope(values[i]));
        store(dx + at, values);
        round_as<T>(values);
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i] += values[i];
    }
#pragma unroll
  for (int i = 0; i < kVector; ++i) shared[threadIdx.y][threadIdx.x * kVector + i] = sums[i];
  __syncthreads();
  const int c = threadIdx.y * kWarp + threadIdx.x;  // one column a thread: there are 256 of both
  const std::int64_t mine = blockIdx.x * static_cast<std::int64_t>(kColumnsOfBlock) + c;
  if (mine >= data.columns) return;
  float total = 0;
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) total += shared[r][c];
  data.partials[static_cast<std::int64_t>(blockIdx.y) * data.columns + mine] = total;
}

template <class T, Before kBefore>
void launch_sum(const void* x, const void* gradient, void* dx, const RowSum& sum,
                cudaStream_t stream) {
  const std::int64_t parts = row_parts(sum.rows, sum.columns);
  const dim3 grid(blocks_for(sum.columns, kColumnsOfBlock), static_cast<unsigned>(parts));
  sum_rows<T, kBefore><<<grid, dim3(kWarp, kRowsAtOnce), 0, stream>>>(
      static_cast<const T*>(x), static_cast<const T*>(gradient), static_cast<T*>(dx), sum);
  add_partials(sum.partials, parts, sum.columns, sum.sum, sum.is_first, stream);
}

template <class T>
__global__ void swiglu(const T* gate, const T* up, T* y, std::int64_t vectors) {
  const std::int64_t at = (blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x) * kVector;
  if (at >= vectors * kVector) return;
  float g[kVector], u[kVector];
  load(gate + at, g);
  load(up + at, u);
#pragma unroll
  for (int i = 0; i < kVector; ++i) u[i] *= g[i] * sigmoid(g[i]);
  store(y + at, u);
}

template <class T>
__global__ void swiglu_gradient(const T* gate, const T* up, const T* gradient, T* d_gate, T* d_up,
                                std::int64_t vectors) {
  const std::int64_t at = (blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x) * kVector;
  if (at >= vectors * kVector) return;
  float g[kVector], u[kVector], above[kVector];
  load(gate + at, g);
  load(up + at, u);
  load(gradient + at, above);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float s = sigmoid(g[i]), silu = g[i] * s;
    const float slope = s * (1.0f + g[i] * (1.0f - s));
    g[i] = above[i] * u[i] * slope;
    u[i] = above[i] * silu;
  }
  store(d_gate + at, g);
  store(d_up + at, u);
}

// A thread has eight pairs of one head.
template <class T>
__global__ void turn(const T* x, const T* cosines, const T* sines, T* y, Rotation r) {
  const std::int64_t vectors = r.half / kVector;
  const std::int64_t task = blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x;
  if (task >= r.rows * r.heads * vectors) return;
  const std::int64_t row = task / (r.heads * vectors), head = task / vectors % r.heads;
  const std::int64_t first = task % vectors * kVector, at = head * 2 * r.half + first;
  const std::int64_t angle = row % r.tokens * r.half + first;
  float a[kVector], b[kVector], c[kVector], s[kVector];
  load(x + row * r.stride + at, a);
  load(x + row * r.stride + at + r.half, b);
  load(cosines + angle, c);
  load(sines + angle, s);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float sine = r.is_inverse ? -s[i] : s[i];
    const float turned = a[i] * c[i] - b[i] * sine;
    b[i] = b[i] * c[i] + a[i] * sine;
    a[i] = turned;
  }
  T* to = y + row * r.heads * 2 * r.half + at;
  store(to, a);
  store(to + r.half, b);
}

__device__ uint2 key_of(const DropoutPass& d, std::int64_t sample) {
  const uint2 key = make_uint2(d.keys[2 * sample], d.keys[2 * sample + 1]);
  if (!d.are_parents) return key;
  const uint4 child = philox(d.block, key, d.place);
  return make_uint2(child.x, child.y);
}

// Where a sample's words have the numbers of its elements.
template <class T>
__global__ void drop(const T* residual, const T* x, T* out, DropoutPass d, unsigned threshold,
                     float scale) {
  const std::int64_t vectors = d.matrices * d.rows * d.columns / kVector;
  const std::int64_t task = blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x;
  if (task >= d.samples * vectors) return;
  const std::int64_t sample = task / vectors, vector = task % vectors;
  const uint2 key = key_of(d, sample);
  const std::int64_t at = task * kVector;
  float values[kVector], more[kVector] = {};
  load(x + at, values);
  if (residual != nullptr) load(residual + at, more);
  const uint4 low = philox(static_cast<unsigned long long>(vector) * 2, key);
  const uint4 high = philox(static_cast<unsigned long long>(vector) * 2 + 1, key);
  const unsigned words[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    values[i] = more[i] + (words[i] >= threshold ? values[i] * scale : 0.0f);
  store(out + at, values);
}

// Any matrices, of which a thread has kVector columns of a row, or what is left of them.
template <class T>
__global__ void drop_corner(const T* residual, const T* x, T* out, DropoutPass d,
                            unsigned threshold, float scale) {
  const std::int64_t groups = (d.columns + kVector - 1) / kVector;
  const std::int64_t task = blockIdx.x * static_cast<std::int64_t>(kBlock) + threadIdx.x;
  const std::int64_t row = task / groups, column = task % groups * kVector;  // rows of all matrices
  const std::int64_t matrix = row / d.rows, sample = matrix / d.matrices;
  if (sample >= d.samples) return;
  const uint2 key = key_of(d, sample);
  const auto first = static_cast<unsigned long long>(
      (matrix % d.matrices * d.drawn_rows + row % d.rows) * d.drawn_columns + column);
  const std::int64_t at = row * d.columns + column;
  uint4 words = {};
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if (column + i >= d.columns) return;
    const unsigned long long number = first + i;
    if (i == 0 || number % 4 == 0) words = philox(number / 4, key);
    const unsigned word = number % 4 < 2 ? (number % 4 == 0 ? words.x : words.y)
                                         : (number % 4 == 2 ? words.z : words.w);
    const float more = residual != nullptr ? as_float(residual[at + i]) : 0.0f;
    assign(out[at + i], more + (word >= threshold ? as_float(x[at + i]) * scale : 0.0f));
  }
}

template <class Launch>
void with_type(Real real, const Launch& launch) {
  if (real == Real::bf16)
    launch(bf16());
  else
    launch(float());
}

}  // namespace

void gelu_forward(Real real, bool is_exact, const void* x, void* y, std::int64_t size,
                  cudaStream_t stream) {
  const std::int64_t vectors = size / kVector;
  with_type(real, [&](auto type) {
    using T = decltype(type);
    const auto kernel = is_exact ? gelu<T, true> : gelu<T, false>;
    kernel<<<blocks_for(vectors, kBlock), kBlock, 0, stream>>>(static_cast<const T*>(x),
                                                               static_cast<T*>(y), vectors);
  });
}

// About four blocks for each of the many processors of a large GPU, each with some rows to add.
std::int64_t row_parts(std::int64_t rows, std::int64_t columns) {
  const std::int64_t stripes = blocks_for(columns, kColumnsOfBlock);
  const std::int64_t wanted = (132 * 4 + stripes - 1) / stripes;
  const std::int64_t most = blocks_for(rows, kRowsAtOnce);
  return wanted < most ? wanted : most;
}

void add_rows(Real real, const void* x, const RowSum& sum, cudaStream_t stream) {
  with_type(real, [&](auto type) {
    launch_sum<decltype(type), Before::nothing>(x, nullptr, nullptr, sum, stream);
  });
}

void gelu_backward(Real real, bool is_exact, const void* x, const void* gradient, void* dx,
                   const RowSum& sum, cudaStream_t stream) {
  with_type(real, [&](auto type) {
    if (is_exact)
      launch_sum<decltype(type), Before::exact_gelu>(x, gradient, dx, sum, stream);
    else
      launch_sum<decltype(type), Before::gelu>(x, gradient, dx, sum, stream);
  });
}

void swiglu_forward(Real real, const void* gate, const void* up, void* y, std::int64_t size,
                    cudaStream_t stream) {
  const std::int64_t vectors = size / kVector;
  with_type(real, [&](auto type) {
    using T = decltype(type);
    swiglu<T><<<blocks_for(vectors, kBlock), kBlock, 0, stream>>>(
        static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(y), vectors);
  });
}

void swiglu_backward(Real real, const void* gate, const void* up, const void* gradient,
                     void* d_gate, void* d_up, std::int64_t size, cudaStream_t stream) {
  const std::int64_t vectors = size / kVector;
  with_type(real, [&](auto type) {
    using T = decltype(type);
    swiglu_gradient<T><<<blocks_for(vectors, kBlock), kBlock, 0, stream>>>(
        static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(gradient),
        static_cast<T*>(d_gate), static_cast<T*>(d_up), vectors);
  });
}

void rotate(Real real, const void* x, const void* cosines, const void* sines, void* y,
            const Rotation& rotation, cudaStream_t stream) {
  const std::int64_t tasks = rotation.rows * rotation.heads * (rotation.half / kVector);
  with_type(real, [&](auto type) {
    using T = decltype(type);
    turn<T><<<blocks_for(tasks, kBlock), kBlock, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(cosines), static_cast<const T*>(sines),
        static_cast<T*>(y), rotation);
  });
}

void dropout_add(Real real, const void* residual, const void* x, void* out,
                 const DropoutPass& dropout, cudaStream_t stream) {
  const std::int64_t all = dropout.samples * dropout.matrices * dropout.rows;
  const std::int64_t elements = dropout.matrices * dropout.rows * dropout.columns;
  const bool is_whole = dropout.rows == dropout.drawn_rows &&
                        dropout.columns == dropout.drawn_columns && elements % kVector == 0;
  const std::int64_t tasks = is_whole ? dropout.samples * (elements / kVector)
                                      : all * ((dropout.columns + kVector - 1) / kVector);
  // As kernel::rule_of() has them.
  const auto threshold = static_cast<unsigned>(dropout.probability * 4294967296.0);
  const auto scale = static_cast<float>(1 / (1 - dropout.probability));
  with_type(real, [&](auto type) {
    using T = decltype(type);
    const auto kernel = is_whole ? drop<T> : drop_corner<T>;
    kernel<<<blocks_for(tasks, kBlock), kBlock, 0, stream>>>(
        static_cast<const T*>(residual), static_cast<const T*>(x), static_cast<T*>(out), dropout,
        threshold, scale);
  });
}

}  // namespace laconic::kernel
