// model/own_backward.hpp — a function whose gradient is written by hand, as a pair of lambdas.
//
//   const Tensor y = ...;                        without a graph
//   return with_backward({y}, {x}, [=](const Tensors& dy) { return Tensors{...}; })[0];
//
// Lighter to compile than torch::autograd::Function, and the backward may hold anything. What it
// holds is freed as soon as it has run, so a graph goes backward once.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace laconic {

using Tensors = std::vector<at::Tensor>;

// Gets the gradients of the outputs, undefined where nothing depends on one, and returns those of
// the inputs; undefined: none.
using OwnBackward = std::function<Tensors(const Tensors& gradients)>;

// The outputs, joined to the inputs' graph. Without gradients they are returned as they are.
// Requires: outputs are fresh tensors without a graph. Leaves among the inputs may be left out, and
// the backward then adds to their grad() itself: `is_needed` says that it must run all the same.
Tensors with_backward(Tensors outputs, const Tensors& inputs, OwnBackward backward,
                      bool is_needed = false);

// leaf.grad() += gradient.
void add_to_grad(const at::Tensor& leaf, const at::Tensor& gradient);

}  // namespace laconic
