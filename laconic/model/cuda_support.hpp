// model/cuda_support.hpp — tensors as the kernels of model/kernel/device.hpp want them. Only the
// sources named cuda_*.cpp include this.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/model/kernel/device.hpp"

namespace laconic::cuda {

inline kernel::Real real_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernel::Real::bf16 : kernel::Real::f32;
}

inline cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

// Throws c10::Error when the kernels just asked for cannot run.
inline void check_launch() {
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

inline at::Tensor floats(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat).requires_grad(false));
}

// A place to add gradients to, float32: made if there is none. `is_first`: what it holds is
// rubbish.
struct SumPlace {
  float* data;
  bool is_first;
};
inline SumPlace place_for(at::Tensor& sum, at::IntArrayRef sizes, const at::Tensor& like) {
  const bool is_first = !sum.defined();
  if (is_first) sum = floats(sizes, like);
  LACONIC_ASSERT(sum.scalar_type() == at::kFloat && sum.is_contiguous() && sum.sizes() == sizes,
                 "gradients of " + std::to_string(sum.numel()) + " elements add up elsewhere");
  return {sum.data_ptr<float>(), is_first};
}

// A step of backward: what comes from the gradients of the outputs for those of the inputs. It
// may hold tensors, but only such as have no graph, and none of the outputs.
using BackwardStep =
    std::function<torch::autograd::variable_list(const torch::autograd::variable_list&)>;

class BackwardNode : public torch::autograd::Node {
 public:
  BackwardNode(torch::autograd::edge_list edges, BackwardStep step)
      : Node(std::move(edges)), step_(std::move(step)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    LACONIC_ASSERT(step_ != nullptr, "backward through the same graph twice");
    return step_(gradients);
  }
  void release_variables() override { step_ = nullptr; }

 private:
  BackwardStep step_;
};

inline bool is_recorded(std::initializer_list<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

// Puts the step between inputs and outputs. Gradients come in the order of the outputs, and those
// of outputs that nobody used are undefined. Requires: outputs have no graph yet.
inline void record(std::initializer_list<at::Tensor> inputs, std::vector<at::Tensor> outputs,
                   BackwardStep step) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs)
    edges.push_back(input.defined() && input.requires_grad()
                        ? torch::autograd::impl::gradient_edge(input)
                        : torch::autograd::Edge());
  const std::shared_ptr<BackwardNode> node(new BackwardNode(std::move(edges), std::move(step)),
                                           torch::autograd::deleteNode);
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
}

}  // namespace laconic::cuda
