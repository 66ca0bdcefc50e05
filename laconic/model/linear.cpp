#include "laconic/model/linear.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

enum class WeightLayout { in_out, out_in };

bool is_short(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16;
}

// Products of bfloat16 add up in float32 and are rounded then: on a GPU inside, and on the CPU by
// widening the factors.
bool is_short_on_cpu(const Tensor& x) {
  return x.is_cpu() && is_short(x);
}
Tensor multiplied(const Tensor& a, const Tensor& b) {
  if (!is_short_on_cpu(a)) return a.mm(b);
  return a.to(at::kFloat).mm(b.to(at::kFloat)).to(a.scalar_type());
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const Tensor factor = layout == WeightLayout::in_out ? weight : weight.t();
  if (!bias.defined()) return multiplied(x, factor);
  if (!is_short_on_cpu(x)) return bias.addmm(x, factor);
  return bias.to(at::kFloat).addmm(x.to(at::kFloat), factor.to(at::kFloat)).to(x.scalar_type());
}

// A linear map whose backward is ours, with GELU behind it or not.
struct LinearTask {
  Tensor x, weight, bias;
  WeightLayout layout;
  std::optional<cuda::Gelu> gelu;
  DeferredWeights* deferred;
};

// What autograd runs for a linear map that does not leave its weights' gradients to autograd:
// because they wait, or because they add up in another type than the weights have.
//
// A node of our own, not a torch::autograd::Function: that one keeps tensors and IValues between
// forward and backward, and a DeferredWeights is neither. The graph may outlive it (an output kept
// too long, an exception on the way), so the node holds a handle that expires, and running such a
// graph backward is refused. Whoever calls backward() holds the DeferredWeights meanwhile, so it
// cannot go between lock() and add().
//
// The one edge goes to x. There is none to weight and bias: nothing comes to them from here.
class OwnLinear : public torch::autograd::Node {
 public:
  OwnLinear(const LinearTask& task, const Tensor& before_gelu)
      : Node(torch::autograd::collect_next_edges(task.x)),
        x_(task.x, false),
        weight_(task.weight, false),
        bias_(task.bias, false),
        before_gelu_(before_gelu),
        layout_(task.layout),
        gelu_(task.gelu),
        is_deferred_(task.deferred != nullptr) {
    if (is_deferred_) deferred_ = task.deferred->handle();
  }

  variable_list apply(variable_list&& gradients) override {
    const Tensor x = x_.unpack().detach();  // without the graph behind it
    const Tensor weight = weight_.unpack();
    Tensor gradient = gradients[0], bias = bias_.unpack();
    if (!gradient.defined()) return {Tensor()};
    if (gelu_) {
      gradient = cuda::gelu_backward(before_gelu_, gradient, *gelu_, bias.mutable_grad());
      bias.reset();
    }
    if (weight.requires_grad()) note(x, weight, bias, gradient);
    if (!task_should_compute_output(0)) return {Tensor()};
    return {multiplied(gradient, layout_ == WeightLayout::in_out ? weight.t() : weight)};
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    bias_.reset_data();
    before_gelu_.reset();
  }

 private:
  void note(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& gradient) {
    DeferredWeights::Product product{.weight = weight, .bias = bias, .left = x, .right = gradient};
    if (layout_ == WeightLayout::out_in) {
      std::swap(product.left, product.right);
      product.sums_left = true;
    }
    if (!is_deferred_) return add_to_gradients(std::move(product));
    const auto deferred = deferred_.lock();
    LACONIC_ASSERT(deferred, "backward of [" + std::to_string(x.size(0)) + ", " +
                                 std::to_string(x.size(1)) +
                                 "] rows whose DeferredWeights has gone");
    deferred->add(std::move(product));
  }

  SavedVariable x_, weight_, bias_;
  Tensor before_gelu_;  // has no graph
  WeightLayout layout_;
  std::optional<cuda::Gelu> gelu_;
  bool is_deferred_;
  std::weak_ptr<DeferredWeights> deferred_;
};

bool is_trained(const Tensor& value) {
  return value.defined() && value.is_leaf() && value.requires_grad();
}

Tensor own_product(const LinearTask& task) {
  Tensor y, before_gelu;
  {
    const at::NoGradGuard no_grad;
    y = product(task.x, task.weight, task.bias, task.layout);
    if (task.gelu) {
      before_gelu = y;
      y = cuda::gelu_of(before_gelu, *task.gelu);
    }
  }
  if (at::GradMode::is_enabled() && (task.x.requires_grad() || task.weight.requires_grad()))
    torch::autograd::set_history(y, std::shared_ptr<OwnLinear>(new OwnLinear(task, before_gelu),
                                                               torch::autograd::deleteNode));
  return y;
}

Tensor deferred_product(const LinearTask& task) {
  for (const Tensor& value : {task.weight, task.bias})
    LACONIC_ASSERT(!value.defined() || is_trained(value),
                   "a weight of " + std::to_string(value.numel()) +
                       " elements whose gradient could not be added later");
  return own_product(task);
}

// Weights that are no leaves, as in a test of something else, are left to autograd.
bool needs_own_backward(const Tensor& x, const Tensor& weight) {
  return (is_short(x) || cuda::takes(x)) && (weight.is_leaf() || !at::GradMode::is_enabled());
}

Tensor any_product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout,
                   DeferredWeights* deferred) {
  const LinearTask task{x, weight, bias, layout, {}, deferred};
  if (deferred != nullptr) return deferred_product(task);
  return needs_own_backward(x, weight) ? own_product(task) : product(x, weight, bias, layout);
}

// Requires: the GPU's kernels take the result.
Tensor gelu_product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout,
                    cuda::Gelu kind, DeferredWeights* deferred) {
  return own_product({x, weight, bias, layout, kind, deferred});
}

}  // namespace

Tensor matrix_product(const Tensor& a, const Tensor& b) {
  return multiplied(a, b);
}

Tensor weight_gradient(const Tensor& a, const Tensor& b) {
  if (!is_short(a)) return a.t().mm(b);
  return a.to(at::kFloat).t().mm(b.to(at::kFloat));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              DeferredWeights* deferred) {
  return any_product(x, weight, bias, WeightLayout::in_out, deferred);
}

Tensor transposed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         DeferredWeights* deferred) {
  return any_product(x, weight, bias, WeightLayout::out_in, deferred);
}

Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                   DeferredWeights* deferred) {
  if (cuda::takes(x) && cuda::takes(weight) && is_trained(weight) && is_trained(bias))
    return gelu_product(x, weight, bias, WeightLayout::in_out, cuda::Gelu::tanh, deferred);
  return laconic::gelu(linear(x, weight, bias, deferred));
}

Tensor exact_gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         DeferredWeights* deferred) {
  if (cuda::takes(x) && cuda::takes(weight) && is_trained(weight) && is_trained(bias) &&
      weight.size(0) % 8 == 0)
    return gelu_product(x, weight, bias, WeightLayout::out_in, cuda::Gelu::exact, deferred);
  return laconic::exact_gelu(transposed_linear(x, weight, bias, deferred));
}

}  // namespace laconic
