// model/kernel/elementwise.hpp — the fused loops between the matrix products, on plain pointers.
//
// Each is one pass over memory, single-threaded; callers split the work. They
// come as a table of functions because Highway compiles every loop once per
// instruction set: elementwise<T>() is the table for this processor, for T
// float or double. No pointer may overlap another unless it is said.
#pragma once

#include <cstdint>

#include "laconic/base/philox.hpp"

namespace laconic::kernel {

// Which elements dropout keeps: element i stays when word i of the key's stream is at least
// `threshold`, and is then multiplied by `scale`. Threshold 0 keeps all.
struct DropoutRule {
  std::uint32_t threshold = 0;  // probability of dropping, times 2^32
  double scale = 1.0;           // 1 / (1 - probability)
};
DropoutRule rule_of(double probability);

template <class T>
struct Elementwise {
  // y = x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): GPT-2's tanh GELU, since
  // (1 + tanh u) / 2 = sigmoid(2 u).
  void (*gelu)(const T* x, T* y, std::int64_t size);

  // dx = dy * gelu'(x). dx may be dy.
  void (*gelu_backward)(const T* x, const T* dy, T* dx, std::int64_t size);

  // y = x * Phi(x), Phi the distribution function of the standard normal: BERT's GELU.
  void (*exact_gelu)(const T* x, T* y, std::int64_t size);

  // dx = dy * exact_gelu'(x). dx may be dy.
  void (*exact_gelu_backward)(const T* x, const T* dy, T* dx, std::int64_t size);

  // y = gate * sigmoid(gate) * up
  void (*swiglu)(const T* gate, const T* up, T* y, std::int64_t size);
  void (*swiglu_backward)(const T* gate, const T* up, const T* dy, T* d_gate, T* d_up,
                          std::int64_t size);

  // Row r of y is that of x times inverses[r] = 1 / sqrt(mean(x^2) + epsilon), times weight.
  void (*rms_norm)(const T* x, const T* weight, T* y, T* inverses, std::int64_t rows,
                   std::int64_t width, double epsilon);

  // Sets dx, and adds to d_weight, row by row.
  void (*rms_norm_backward)(const T* x, const T* weight, const T* dy, const T* inverses, T* dx,
                            T* d_weight, std::int64_t rows, std::int64_t width);

  // One row of heads of 2 * half elements: the pair (x[i], x[i + half]) of each head is turned by
  // the angle with cosines[i], sines[i], or back.
  void (*rotate)(const T* x, const T* cosines, const T* sines, T* y, std::int64_t heads,
                 std::int64_t half, bool is_inverse);

  // out[i] = residual[i] + (kept(first + i) ? scale * x[i] : 0). A null residual counts as zero;
  // out may be x or residual.
  void (*dropout_add)(const T* residual, const T* x, T* out, std::int64_t size, Key key,
                      std::uint64_t first, DropoutRule rule);

  // Rows of attention scores, in place: row r (the query at position first_row + r) becomes
  // softmax(scale * scores) over columns 0 ... first_row + r and zero after them; log_sums[r]
  // becomes the logarithm of its normaliser. With first_row = columns every row sees all columns.
  void (*causal_softmax)(T* scores, std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                         double scale, T* log_sums);

  // The middle of attention's backward pass, in place on two tiles of rows x columns:
  //   in:   scores = q k^T   gradients = d(output) v^T
  //   out:  scores = P o M   gradients = d(q k^T)
  // P is recomputed from log_sums; M is the dropout mask with its scale, drawn for row r from
  // words first_word + r * row_words + column.
  void (*causal_softmax_backward)(T* scores, T* gradients, std::int64_t rows, std::int64_t columns,
                                  std::int64_t first_row, double scale, const T* log_sums, Key key,
                                  std::uint64_t first_word, std::uint64_t row_words,
                                  DropoutRule rule);

  // log(sum(exp(row))); NaN when the row holds NaN or +infinity.
  T (*log_sum_exp)(const T* row, std::int64_t size);

  T (*sum)(const T* row, std::int64_t size);

  // row[j] = scale * (exp(row[j] - log_sum) - (1 - smoothing) [j == target] - smoothing / size), in
  // place.
  void (*cross_entropy_backward)(T* row, std::int64_t size, T log_sum, std::int64_t target, T scale,
                                 double smoothing);
};

template <class T>
const Elementwise<T>& elementwise();

}  // namespace laconic::kernel
