// model/deferred.hpp — backward in two halves: gradients of inputs now, of weights later.
//
// The stage before waits for the gradient of a stage's input; nobody but the
// optimiser waits for the gradients of its weights. Linear maps and the head, where
// nearly all the work of the second kind is, can put it off: given a
// DeferredWeights in forward (Pass::deferred), their backward computes the
// gradient of the input and notes what the weights' will need. run() then does
// that, and adds to the weights' grad() what an undivided backward would have
// added, bit for bit, provided that microbatches run() in the order in which they
// would have gone backward: floating-point sums depend on it.
//
// Norms, positions, the embedding's rows and, on a GPU, biases before a GELU are cheap and stay in
// the first half.
//
// grad() may hold the sum of earlier microbatches (lend_sums(), model/weights.hpp), as it does on a
// GPU: products add to it in the pass that computes them.
//
// What waiting costs: both factors of every product stay in memory from the first
// half to the second. That is 16 widths a token and layer at most (the inputs, 7, which
// an undivided backward frees as it goes, and the gradients of the outputs, 9,
// which it holds one at a time), and width + vocabulary a token for the head.
// Without dropout a gradient noted may be the very tensor that was given to
// backward(): leave it alone until run().
//
// Thread-safety: autograd may note from a thread of its own (a GPU's); run() and
// the forward pass belong to one thread at a time, and after backward has returned.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace laconic {

class DeferredWeights {
 public:
  // weight.grad() += left^T right, and bias.grad() += sum of the rows of right, or of left, if
  // there is a bias.
  struct Product {
    at::Tensor weight, bias;
    at::Tensor left, right;
    bool sums_left = false;
  };

  DeferredWeights() = default;
  DeferredWeights(const DeferredWeights&) = delete;
  DeferredWeights& operator=(const DeferredWeights&) = delete;

  void add(Product product);
  // Anything else that adds to gradients.
  void add(std::function<void()> work);
  // In the order of add(). Nothing is left afterwards.
  void run();
  bool is_empty() const;

  // For what may live longer, a graph for instance: expires with this.
  std::weak_ptr<DeferredWeights> handle() { return self_; }

 private:
  // Owns nothing: it is there to expire.
  const std::shared_ptr<DeferredWeights> self_{this, [](DeferredWeights*) {}};
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> works_;
};

// Does what is noted at once. By value: the factors are freed as soon as they are used. Gradients
// of weights in bfloat16 are float32.
void add_to_gradients(DeferredWeights::Product product);

}  // namespace laconic
