// model/deferred.hpp — backward in two halves: gradients of inputs now, of weights later.
//
// The stage before waits for the gradient of a stage's input; nobody but the
// optimiser waits for the gradients of its weights. Linear maps and the head, where
// nearly all the work of the second kind is, can put it off: given a
// DeferredWeights in forward (Microbatch::deferred), their backward computes the
// gradient of the input and notes what the weights' will need. run() then does
// that, and adds to the weights' grad() what an undivided backward would have
// added, bit for bit.
//
// Norms, positions and the embedding's rows are cheap and stay in the first half.
//
// Thread-safety: autograd may note from a thread of its own (a GPU's); run() and
// the forward pass belong to one thread at a time, and after backward has returned.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace laconic {

class DeferredWeights {
 public:
  // weight.grad() += left^T right, and bias.grad() += sum of right's rows, if there is a bias.
  struct Product {
    at::Tensor weight, bias;
    at::Tensor left, right;
  };
  void add(Product product);
  // In the order of add(). Nothing is left afterwards.
  void run();
  bool is_empty() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Product> products_;
};

}  // namespace laconic
