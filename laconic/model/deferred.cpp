#include "laconic/model/deferred.hpp"

#include <ATen/ExpandUtils.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace laconic {

namespace {

// As autograd does it: the first gradient becomes grad(), others are added to it. Not one addmm
// into grad(), which would save a pass: it rounds differently.
void accumulate(at::Tensor& value, at::Tensor gradient) {
  if (value.grad().defined())
    value.mutable_grad().add_(gradient);
  else
    value.mutable_grad() = std::move(gradient);
}

// By value: the factors are freed as soon as they are used.
void run_one(DeferredWeights::Product product) {
  accumulate(product.weight, product.left.t().mm(product.right));
  const at::Tensor& summed = product.sums_left ? product.left : product.right;
  if (product.bias.defined()) accumulate(product.bias, at::sum_to(summed, product.bias.sizes()));
}

}  // namespace

void DeferredWeights::add(Product product) {
  const std::lock_guard lock(mutex_);
  products_.push_back(std::move(product));
}

void DeferredWeights::run() {
  std::vector<Product> products;
  {
    const std::lock_guard lock(mutex_);
    products.swap(products_);
  }
  const at::NoGradGuard no_grad;
  for (Product& product : products) run_one(std::move(product));
}

bool DeferredWeights::is_empty() const {
  const std::lock_guard lock(mutex_);
  return products_.empty();
}

}  // namespace laconic
