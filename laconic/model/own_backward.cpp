#include "laconic/model/own_backward.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

using torch::autograd::variable_list;

class OwnNode : public torch::autograd::Node {
 public:
  OwnNode(torch::autograd::edge_list edges, OwnBackward backward)
      : Node(std::move(edges)), backward_(std::move(backward)) {}

  variable_list apply(variable_list&& gradients) override {
    LACONIC_ASSERT(backward_, "backward ran twice");
    const at::NoGradGuard no_grad;
    const OwnBackward backward = std::exchange(backward_, {});
    return backward(gradients);
  }
  void release_variables() override { backward_ = {}; }

 private:
  OwnBackward backward_;
};

}  // namespace

Tensors with_backward(Tensors outputs, const Tensors& inputs, OwnBackward backward,
                      bool is_needed) {
  bool has_graph = is_needed;
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) {
    const bool takes = input.defined() && input.requires_grad();
    has_graph |= takes;
    edges.push_back(takes ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
  }
  if (!has_graph || !at::GradMode::is_enabled()) return outputs;
  const std::shared_ptr<OwnNode> node(new OwnNode(std::move(edges), std::move(backward)),
                                      torch::autograd::deleteNode);
  for (at::Tensor& output : outputs) torch::autograd::set_history(output, node);
  return outputs;
}

void add_to_grad(const at::Tensor& leaf, const at::Tensor& gradient) {
  at::Tensor& sum = leaf.mutable_grad();
  const at::Tensor shaped = gradient.view(leaf.sizes());
  if (sum.defined())
    sum.add_(shaped);
  else
    sum = shaped;
}

}  // namespace laconic
