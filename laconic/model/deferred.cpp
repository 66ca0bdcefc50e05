#include "laconic/model/deferred.hpp"

#include <ATen/ExpandUtils.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "laconic/model/cuda.hpp"

namespace laconic {

namespace {

// As autograd does it: the first gradient becomes grad(), others are added to it. Not one addmm
// into grad(), which would save a pass: it rounds differently. A GPU does that wherever grad()
// holds something, in both ways of going backward.
void accumulate(at::Tensor& value, at::Tensor gradient) {
  if (value.grad().defined())
    value.mutable_grad().add_(gradient);
  else
    value.mutable_grad() = std::move(gradient);
}

// The gradients of short weights are longer than these: they are rounded nowhere.
at::Tensor at_full_length(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x;
}

}  // namespace

void add_to_gradients(DeferredWeights::Product product) {
  const at::Tensor& summed = product.sums_left ? product.left : product.right;
  if (cuda::takes(product.weight)) {
    cuda::add_product(product.left, product.right, product.weight.mutable_grad());
    if (product.bias.defined()) cuda::add_rows(summed, product.bias.mutable_grad());
    return;
  }
  accumulate(product.weight, at_full_length(product.left).t().mm(at_full_length(product.right)));
  if (product.bias.defined())
    accumulate(product.bias, at::sum_to(at_full_length(summed), product.bias.sizes()));
}

void DeferredWeights::add(Product product) {
  add([product = std::move(product)]() mutable { add_to_gradients(std::move(product)); });
}

void DeferredWeights::add(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

void DeferredWeights::run() {
  std::vector<std::function<void()>> works;
  {
    const std::lock_guard lock(mutex_);
    works.swap(works_);
  }
  const at::NoGradGuard no_grad;
  for (std::function<void()>& work : works) std::exchange(work, {})();
}

bool DeferredWeights::is_empty() const {
  const std::lock_guard lock(mutex_);
  return works_.empty();
}

}  // namespace laconic
