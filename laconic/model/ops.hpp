// model/ops.hpp — the differentiable operations a Transformer needs beyond matrix products.
//
// Two implementations of each. `fused` (float and double on the CPU) makes one
// pass over memory and keeps little for backward; `composed` is built from
// ATen operations, runs on any device, and is what the fused one is tested
// against. The plain names choose by device.
//
// Activations are matrices [samples * tokens, width]: a sample is `tokens`
// consecutive rows.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"

namespace at {
class Tensor;
}

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

// Dropout at one place of the model. The mask of a sample depends on its key and the element's
// index within the sample, so it does not matter which rank, microbatch or recomputation asks.
struct Dropout {
  double probability = 0;
  std::vector<Key> sample_keys;  // one per sample of the microbatch, when probability > 0
};

at::Tensor gelu(const at::Tensor& x);

// residual + dropout(x)
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);

// softmax(q k^T / sqrt(head width), causal) v for every head, with dropout on the probabilities.
// qkv: [samples * tokens, 3 * width], q then k then v, each head by head. Returns [rows, width].
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);

// Mean over rows of -log softmax(x weight^T)[target]. x: [rows, width], weight: [vocabulary,
// width], targets: [rows] int64, each in [0, vocabulary) or kNoTarget, which adds nothing to the
// sum; its row counts all the same. The logits are never kept twice. With
// `deferred` backward leaves the weight's gradient to it, as model/linear.hpp says.
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred = nullptr);

namespace fused {
at::Tensor gelu(const at::Tensor& x);
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred = nullptr);
}  // namespace fused

namespace composed {
at::Tensor gelu(const at::Tensor& x);
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t samples, std::int64_t heads,
                            const Dropout& dropout);
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         DeferredWeights* deferred = nullptr);

// [samples, elements] of zeros and 1 / (1 - p), of x's dtype and device.
at::Tensor dropout_mask(const at::Tensor& like, const Dropout& dropout, std::int64_t elements);
}  // namespace composed

}  // namespace laconic
