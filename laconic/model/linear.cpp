#include "laconic/model/linear.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "laconic/base/error.hpp"
#include "laconic/model/deferred.hpp"

namespace laconic {

namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

enum class WeightLayout { in_out, out_in };

// What autograd runs for a linear map whose weights wait.
//
// A node of our own, not a torch::autograd::Function: that one keeps tensors and IValues between
// forward and backward, and a DeferredWeights is neither. The graph may outlive it (an output kept
// too long, an exception on the way), so the node holds a handle that expires, and running such a
// graph backward is refused. Whoever calls backward() holds the DeferredWeights meanwhile, so it
// cannot go between lock() and add().
//
// The one edge goes to x. There is none to weight and bias: nothing comes to them from here.
class DeferredLinear : public torch::autograd::Node {
 public:
  DeferredLinear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout,
                 DeferredWeights& deferred)
      : Node(torch::autograd::collect_next_edges(x)),
        x_(x, false),
        weight_(weight, false),
        bias_(bias, false),
        layout_(layout),
        deferred_(deferred.handle()) {}

  variable_list apply(variable_list&& gradients) override {
    const Tensor x = x_.unpack().detach();  // without the graph behind it
    const Tensor weight = weight_.unpack();
    const Tensor gradient = gradients[0];
    if (!gradient.defined()) return {Tensor()};
    note(x, weight, gradient);
    if (!task_should_compute_output(0)) return {Tensor()};
    return {gradient.mm(layout_ == WeightLayout::in_out ? weight.t() : weight)};
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    bias_.reset_data();
  }

 private:
  void note(const Tensor& x, const Tensor& weight, const Tensor& gradient) {
    const auto deferred = deferred_.lock();
    LACONIC_ASSERT(deferred, "backward of [" + std::to_string(x.size(0)) + ", " +
                                 std::to_string(x.size(1)) +
                                 "] rows whose DeferredWeights has gone");
    if (layout_ == WeightLayout::in_out)
      deferred->add({.weight = weight, .bias = bias_.unpack(), .left = x, .right = gradient});
    else
      deferred->add({.weight = weight,
                     .bias = bias_.unpack(),
                     .left = gradient,
                     .right = x,
                     .sums_left = true});
  }

  SavedVariable x_, weight_, bias_;
  WeightLayout layout_;
  std::weak_ptr<DeferredWeights> deferred_;
};

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const Tensor factor = layout == WeightLayout::in_out ? weight : weight.t();
  return bias.defined() ? bias.addmm(x, factor) : x.mm(factor);
}

Tensor deferred_product(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        WeightLayout layout, DeferredWeights& deferred) {
  for (const Tensor& value : {weight, bias})
    LACONIC_ASSERT(!value.defined() || (value.is_leaf() && value.requires_grad()),
                   "a weight of " + std::to_string(value.numel()) +
                       " elements whose gradient could not be added later");
  Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = product(x, weight, bias, layout);
  }
  if (at::GradMode::is_enabled())
    torch::autograd::set_history(
        y, std::shared_ptr<DeferredLinear>(new DeferredLinear(x, weight, bias, layout, deferred),
                                           torch::autograd::deleteNode));
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              DeferredWeights* deferred) {
  return deferred == nullptr ? product(x, weight, bias, WeightLayout::in_out)
                             : deferred_product(x, weight, bias, WeightLayout::in_out, *deferred);
}

Tensor transposed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         DeferredWeights* deferred) {
  return deferred == nullptr ? product(x, weight, bias, WeightLayout::out_in)
                             : deferred_product(x, weight, bias, WeightLayout::out_in, *deferred);
}

}  // namespace laconic
