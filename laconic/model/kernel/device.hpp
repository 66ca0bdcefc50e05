// model/kernel/device.hpp — kernels for NVIDIA GPUs. Requires, everywhere: pointers into the memory
// of the stream's device, contiguous unless a stride is given; rows begin at multiples of 16 bytes,
// and widths are multiples of 8. Nothing here waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace laconic::kernel {

// The type of activations.
enum class Real : std::uint8_t { f32, bf16 };

// ----- norms (norm.cu)

// rms: without mean and bias.
enum class Norm : std::uint8_t { layer, rms };

struct NormShape {
  Norm norm;
  Real real;
  std::int64_t rows;
  int width;  // at most kMostNormWidth
  float epsilon;
};
constexpr int kMostNormWidth = 8192;

// sum = residual + x, normed = its norm; without a residual x is the sum. means, inverses: [rows].
struct NormForward {
  const void* residual;  // may be null
  const void* x;
  const void* weight;
  const void* bias;  // of layer norm
  void* sum;         // with a residual
  void* normed;
  float* means;  // of layer norm
  float* inverses;
};
void norm_forward(const NormShape& shape, const NormForward& data, cudaStream_t stream);

// dx = beside + the gradient through the norm of x. weight_sum, bias_sum: [width], to which the
// gradients of weight and bias are added, or which they become.
struct NormBackward {
  const void* gradient;  // of `normed`
  const void* beside;    // may be null
  const void* x;         // what was normed
  const void* weight;
  const float* means;
  const float* inverses;
  void* dx;
  float* weight_sum;
  float* bias_sum;
  bool weight_is_first, bias_is_first;
  float* partials;  // 2 * norm_parts(shape) * width
};
std::int64_t norm_parts(const NormShape& shape);
void norm_backward(const NormShape& shape, const NormBackward& data, cudaStream_t stream);

// ----- one pass over all elements (elementwise.cu); `size` is a multiple of 8

void gelu_forward(Real real, bool is_exact, const void* x, void* y, std::int64_t size,
                  cudaStream_t stream);

// The rows of a matrix [rows, columns] are added up in parts, and these then.
struct RowSum {
  std::int64_t rows, columns;
  float* sum;
  bool is_first;
  float* partials;  // row_parts(rows, columns) * columns
};
std::int64_t row_parts(std::int64_t rows, std::int64_t columns);
void add_rows(Real real, const void* x, const RowSum& sum, cudaStream_t stream);
// dx = gradient * gelu'(x), and its rows are added up.
void gelu_backward(Real real, bool is_exact, const void* x, const void* gradient, void* dx,
                   const RowSum& sum, cudaStream_t stream);

void swiglu_forward(Real real, const void* gate, const void* up, void* y, std::int64_t size,
                    cudaStream_t stream);
void swiglu_backward(Real real, const void* gate, const void* up, const void* gradient,
                     void* d_gate, void* d_up, std::int64_t size, cudaStream_t stream);

// Rows of x lie `stride` elements apart; y is contiguous. Angles: [tokens, half].
struct Rotation {
  std::int64_t rows, tokens, heads, half, stride;
  bool is_inverse;
};
void rotate(Real real, const void* x, const void* cosines, const void* sines, void* y,
            const Rotation& rotation, cudaStream_t stream);

// out = residual + dropout(x), or dropout(x) without one; any number of columns. A sample is some
// matrices, and the word of an element is number (matrix * drawn_rows + row) * drawn_columns +
// column: they may be the first corners of larger ones. keys: two words for each sample; where they
// are parents, a sample's key is derived by block and place.
struct DropoutPass {
  std::int64_t samples, matrices, rows, columns;
  std::int64_t drawn_rows, drawn_columns;
  const std::uint32_t* keys;
  bool are_parents;
  std::uint64_t block, place;
  double probability;
};
void dropout_add(Real real, const void* residual, const void* x, void* out,
                 const DropoutPass& dropout, cudaStream_t stream);

// ----- loss (cross_entropy.cu)

// Logits [rows, vocabulary], whose rows lie `stride` apart, a multiple of 8.
struct CrossEntropy {
  Real real;
  std::int64_t rows, vocabulary, stride;
  const std::int64_t* targets;
  double smoothing;
};
// log_sums: [rows]; row_losses: [rows]; loss: their mean. A target outside of the vocabulary makes
// the loss NaN.
void cross_entropy_forward(const CrossEntropy& task, const void* logits, float* log_sums,
                           float* row_losses, float* loss, cudaStream_t stream);
// Logits become their gradients, where that of the loss is *gradient; what lies between vocabulary
// and stride becomes zero.
void cross_entropy_backward(const CrossEntropy& task, void* logits, const float* log_sums,
                            const float* gradient, cudaStream_t stream);

// ----- rows of a table (embedding.cu)

void embedding_forward(Real real, const void* table, const std::int64_t* ids, void* out,
                       std::int64_t count, std::int64_t width, cudaStream_t stream);
// sum[id] += all rows of the gradient that have this id, in their order. ids are sorted; order[i]
// is the row of the i-th. partials: [count, width].
void embedding_backward(Real real, const void* gradient, const std::int64_t* ids,
                        const std::int64_t* order, float* partials, float* sum, std::int64_t count,
                        std::int64_t width, cudaStream_t stream);

}  // namespace laconic::kernel
