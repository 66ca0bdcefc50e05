// model/ops.hpp — the differentiable operations a Transformer needs beyond matrix products.
//
// Three implementations of each. `fused` (float and double on the CPU) and `cuda` (float and
// bfloat16 on an NVIDIA GPU) make one pass over memory and keep little for backward;
// `composed` is built from ATen operations, runs on any device, and is what the others are tested
// against. The plain names choose by device. bfloat16 that no kernel takes (all of it on the CPU,
// where it is for tests) is widened, and results are rounded.
//
// Activations are matrices [samples * tokens, width]: a sample is `tokens`
// consecutive rows.
//
// Requires, of `cuda`: parameters are leaves. Their gradients go straight into grad(), which is
// float32 also where the leaf is bfloat16; autograd::grad() does not see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

// Dropout at one place of the model. The mask of a sample depends on its key and the element's
// index within the sample, so it does not matter which rank, microbatch or recomputation asks.
struct Dropout {
  double probability = 0;
  std::vector<Key> sample_keys = {};  // one per sample of the microbatch, when probability > 0
  // Tokens of a whole sample, by which attention numbers its words where padding was cut off:
  // shorter microbatches have the same masks. 0: nothing was.
  std::int64_t tokens = 0;
  // The same for a GPU, where they are derived in the kernel: keys of the samples there, [samples,
  // 2] int32, and what sample_keys are derived by. Undefined: sample_keys are brought there.
  at::Tensor parents = {};
  std::uint64_t block = 0, place = 0;
  // Of a matrix on a tensor grid: the columns of the whole one, and which of them is the first
  // here. 0: all are here. Of attention: the first head here.
  std::int64_t columns = 0, first_column = 0;
  std::int64_t first_head = 0;
};

// Short floats as float32, others as they are.
at::Tensor full_length(const at::Tensor& x);

// GELU by tanh, as GPT-2 has it.
at::Tensor gelu(const at::Tensor& x);

// GELU as it is defined, x Phi(x) by erf: BERT's.
at::Tensor exact_gelu(const at::Tensor& x);

// silu(gate) * up, both of one shape; silu(x) = x sigmoid(x).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// x / sqrt(mean(x^2) + epsilon) * weight, each row by itself. x: [rows, width], weight: [width].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// (x - mean) / sqrt(variance + epsilon) * weight + bias, each row by itself.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon);

// What goes on beside a branch, and what goes into it.
struct Forked {
  at::Tensor beside, normed;
};

// x and its norm: where both are used, backward adds their gradients in the pass of the norm's.
Forked fork_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       double epsilon);
Forked fork_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// y = residual + dropout(x), and its norm.
Forked add_layer_norm(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout,
                      const at::Tensor& weight, const at::Tensor& bias, double epsilon);
Forked add_rms_norm(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout,
                    const at::Tensor& weight, double epsilon);

// Rows of the table, one for each id. table: [vocabulary, width], ids: [n] int64; returns [n,
// width].
at::Tensor table_rows(const at::Tensor& table, const at::Tensor& ids);

// Rotates the pairs (i, i + head width / 2) of every head by the angle of the token's position:
// Hugging Face's "rotate_half". x: [samples * tokens, heads * head width]; cosines, sines: [at
// least tokens, head width / 2] of x's dtype. Row r of x has position r % tokens.
at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines);

// dropout(x) of matrices [samples, ..., rows, columns]. Words have the numbers of a sample's
// elements; with Dropout::tokens, those they would have in matrices of so many rows and columns.
at::Tensor drop(const at::Tensor& x, const Dropout& dropout);

// residual + dropout(x)
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);

struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t heads = 0;
  // Heads of k and v; divides heads. Fewer than heads: consecutive queries' heads share one.
  std::int64_t key_heads = 0;
  bool is_causal = false;  // then there are as many keys as queries
};

// softmax(q k^T / sqrt(head width)) v for every head, with dropout on the probabilities.
// q: [samples * queries, heads * head width]; k, v: [samples * keys, key heads * head width].
// lengths: [samples] int64, each at least 1. A sample's keys and values at and beyond its length
// are padding: they change nothing, whatever they are, and get zero gradients. Undefined: there is
// no padding. Rows of q are all computed, those of padding too.
// Returns [samples * queries, heads * head width]. The word of the dropout mask for a probability
// is number (head * queries + query) * keys + key of its sample, with Dropout::tokens for queries
// and keys where that is given.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout);

// Causal attention without padding of the three parts of one matrix. qkv: [samples * tokens,
// 3 * width], q then k then v, each head by head. Returns [rows, width].
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);

// Mean over rows of -log softmax(x weight^T + bias)[target]. x: [rows, width], weight: [vocabulary,
// width], bias: [vocabulary] or undefined, targets: [rows] int64, each in [0, vocabulary) or
// kNoTarget, which adds nothing to the sum; its row counts all the same. The logits are never kept
// twice; the loss is float32 at least. With `deferred` backward leaves the gradients of weight and
// bias to it, as model/linear.hpp says. With `smoothing` s a row's loss is (1 - s) times that, and
// s times the mean over the vocabulary of -log softmax: torch.nn.CrossEntropyLoss's label
// smoothing. `room` rows of zeros lie behind the weight in its memory (Weights::room()).
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred = nullptr,
                         double smoothing = 0, std::int64_t room = 0);

// The same without a bias.
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred = nullptr, double smoothing = 0,
                         std::int64_t room = 0);

namespace fused {
at::Tensor gelu(const at::Tensor& x);
at::Tensor exact_gelu(const at::Tensor& x);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines);
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred = nullptr,
                         double smoothing = 0);
// From the logits on, which it may overwrite.
at::Tensor cross_entropy_of(const at::Tensor& logits, const at::Tensor& targets, double smoothing);
}  // namespace fused

namespace cuda {
// What they take says model/cuda.hpp.
at::Tensor gelu(const at::Tensor& x);
at::Tensor exact_gelu(const at::Tensor& x);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
Forked fork_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       double epsilon);
Forked fork_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
Forked add_layer_norm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double epsilon);
Forked add_rms_norm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                    double epsilon);
at::Tensor table_rows(const at::Tensor& table, const at::Tensor& ids);
at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines);
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);
at::Tensor drop(const at::Tensor& x, const Dropout& dropout);
// Requires: padding is finite.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred = nullptr,
                         double smoothing = 0, std::int64_t room = 0);
}  // namespace cuda

namespace composed {
at::Tensor gelu(const at::Tensor& x);
at::Tensor exact_gelu(const at::Tensor& x);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor rotate(const at::Tensor& x, std::int64_t samples, std::int64_t heads,
                  const at::Tensor& cosines, const at::Tensor& sines);
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);
at::Tensor drop(const at::Tensor& x, const Dropout& dropout);
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const at::Tensor& lengths,
                     const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets, DeferredWeights* deferred = nullptr,
                         double smoothing = 0);

// [samples, elements] of zeros and 1 / (1 - p), on x's device and of its dtype, or float32 where
// that is short. Nothing comes from the host where Dropout::parents are there.
at::Tensor dropout_mask(const at::Tensor& like, const Dropout& dropout, std::int64_t elements);
}  // namespace composed

}  // namespace laconic
