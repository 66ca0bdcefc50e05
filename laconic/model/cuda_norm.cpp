// Norms of model/ops.hpp on an NVIDIA GPU, with the sums before them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include "laconic/model/cuda.hpp"
#include "laconic/model/cuda_support.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::cuda {

namespace {

using at::Tensor;
using torch::autograd::variable_list;

struct NormTask {
  kernel::NormShape shape;
  Tensor weight, bias;
  // Leaves have their gradients added to grad(). What a grid has gathered is none: whoever gathered
  // it wants its gradient from autograd.
  bool are_leaves = true;
};

NormTask layer_task(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return {{kernel::Norm::layer, real_of(x), x.numel() / x.size(-1), static_cast<int>(x.size(-1)),
           static_cast<float>(epsilon)},
          weight,
          bias,
          weight.is_leaf()};
}
NormTask rms_task(const Tensor& x, const Tensor& weight, double epsilon) {
  NormTask task = layer_task(x, weight, {}, epsilon);
  task.shape.norm = kernel::Norm::rms;
  return task;
}

// What backward of a norm holds.
struct NormKept {
  NormTask task;
  Tensor x, means, inverses;
};

// The gradients of what was normed, from that of the norm and that of what went beside it, and of
// a weight and a bias that are no leaves.
variable_list backward_of(const NormKept& kept, const Tensor& of_normed, const Tensor& beside) {
  if (!of_normed.defined()) return {beside, Tensor(), Tensor()};
  const kernel::NormShape& shape = kept.task.shape;
  const Tensor gradient = of_normed.contiguous();
  const Tensor other = beside.defined() ? beside.contiguous() : beside;
  Tensor dx = at::empty_like(kept.x);
  Tensor weight = kept.task.weight, bias = kept.task.bias;
  Tensor weight_gradient, bias_gradient;
  const bool adds = kept.task.are_leaves;
  Tensor& weight_sum = adds && weight.requires_grad() ? weight.mutable_grad() : weight_gradient;
  Tensor& bias_sum =
      adds && bias.defined() && bias.requires_grad() ? bias.mutable_grad() : bias_gradient;
  const SumPlace of_weight = place_for(weight_sum, {shape.width}, kept.x);
  SumPlace of_bias{nullptr, true};
  if (shape.norm == kernel::Norm::layer) of_bias = place_for(bias_sum, {shape.width}, kept.x);
  const Tensor partials = floats({2 * kernel::norm_parts(shape), shape.width}, kept.x);
  kernel::norm_backward(shape,
                        {.gradient = gradient.data_ptr(),
                         .beside = other.defined() ? other.data_ptr() : nullptr,
                         .x = kept.x.data_ptr(),
                         .weight = weight.data_ptr(),
                         .means = kept.means.defined() ? kept.means.data_ptr<float>() : nullptr,
                         .inverses = kept.inverses.data_ptr<float>(),
                         .dx = dx.data_ptr(),
                         .weight_sum = of_weight.data,
                         .bias_sum = of_bias.data,
                         .weight_is_first = of_weight.is_first,
                         .bias_is_first = of_bias.is_first,
                         .partials = partials.data_ptr<float>()},
                        stream_of(kept.x));
  check_launch();
  return {dx, weight_gradient, bias_gradient};
}

// residual + x, or x, and its norm.
Forked normed(const NormTask& task, const Tensor& any_residual, const Tensor& any_x) {
  LACONIC_ASSERT(task.shape.width <= kernel::kMostNormWidth,
                 "rows of " + std::to_string(task.shape.width) + " elements");
  const Tensor x = any_x.detach().contiguous();
  const Tensor residual = any_residual.defined() ? any_residual.detach().contiguous() : Tensor();
  const Tensor sum = residual.defined() ? at::empty_like(x) : x;
  const Tensor out = at::empty_like(x), inverses = floats({task.shape.rows}, x);
  const bool is_layer = task.shape.norm == kernel::Norm::layer;
  const Tensor means = is_layer ? floats({task.shape.rows}, x) : Tensor();
  kernel::norm_forward(task.shape,
                       {.residual = residual.defined() ? residual.data_ptr() : nullptr,
                        .x = x.data_ptr(),
                        .weight = task.weight.data_ptr(),
                        .bias = is_layer ? task.bias.data_ptr() : nullptr,
                        .sum = sum.data_ptr(),
                        .normed = out.data_ptr(),
                        .means = is_layer ? means.data_ptr<float>() : nullptr,
                        .inverses = inverses.data_ptr<float>()},
                       stream_of(x));
  check_launch();
  const Tensor beside = sum.detach();  // a tensor of its own, so that it has its own history
  if (is_recorded({any_residual, any_x, task.weight})) {
    const bool is_added = residual.defined(), returns = !task.are_leaves;
    NormKept kept{task, sum, means, inverses};
    if (returns) kept.task.weight = task.weight.detach();
    if (returns && is_layer) kept.task.bias = task.bias.detach();
    record({any_x, any_residual, returns ? task.weight : Tensor(), returns ? task.bias : Tensor()},
           {beside, out}, [kept, is_added, returns](const variable_list& g) -> variable_list {
             const variable_list d = backward_of(kept, g[1], g[0]);
             return {d[0], is_added ? d[0] : Tensor(), returns ? d[1] : Tensor(),
                     returns ? d[2] : Tensor()};
           });
  }
  return {beside, out};
}

}  // namespace

bool takes_norm(const Tensor& x) {
  return takes(x) && x.size(-1) <= kernel::kMostNormWidth;
}

Forked fork_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return normed(layer_task(x, weight, bias, epsilon), {}, x);
}

Forked fork_rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return normed(rms_task(x, weight, epsilon), {}, x);
}

Forked add_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, double epsilon) {
  return normed(layer_task(x, weight, bias, epsilon), residual, x);
}

Forked add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, double epsilon) {
  return normed(rms_task(x, weight, epsilon), residual, x);
}

}  // namespace laconic::cuda
