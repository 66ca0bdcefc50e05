// Gradients of weights on a GPU: products that add up in float32 in one pass.
#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/csrc/api/include/torch/version.h>
#endif

#include "laconic/model/cuda.hpp"
#include "laconic/model/cuda_support.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::cuda {

using at::Tensor;

namespace {

// libtorch has the product of short factors that adds to a float32 matrix, but before 2.11 (its
// pull request 167931) it refuses that matrix.
constexpr bool kAddsInProduct = TORCH_VERSION_MAJOR > 2 ||
                                (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11);

}  // namespace

bool takes_drop(const Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

bool takes(const Tensor& x) {
  return takes_drop(x) && x.dim() > 0 && x.size(-1) % 8 == 0;
}

void prepare(bool is_deterministic) {
  at::Context& context = at::globalContext();
  context.setDeterministicFillUninitializedMemory(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setSDPUseCuDNN(!is_deterministic);
}

Tensor gelu_of(const Tensor& x, Gelu kind) {
  Tensor y = at::empty_like(x);
  kernel::gelu_forward(real_of(x), kind == Gelu::exact, x.data_ptr(), y.data_ptr(), x.numel(),
                       stream_of(x));
  check_launch();
  return y;
}

void add_product(const Tensor& left, const Tensor& right, Tensor& sum) {
  const bool is_short = left.scalar_type() != at::kFloat;
  if (!sum.defined())
    sum = is_short ? at::mm(left.t(), right, at::kFloat) : at::mm(left.t(), right);
  else if (!is_short)
    sum.addmm_(left.t(), right);
  else if (kAddsInProduct)
    at::addmm_out(sum, sum, left.t(), right, at::kFloat);
  else
    sum.add_(at::mm(left.t(), right, at::kFloat));
}

void add_rows(const Tensor& any, Tensor& sum) {
  const std::int64_t rows = any.size(0), columns = any.size(1);
  if (columns % 8 != 0) {  // a head with two classes, for instance
    const Tensor total = any.sum(0, false, at::kFloat);
    sum = sum.defined() ? sum.add_(total) : total;
    return;
  }
  const Tensor x = any.contiguous();
  const SumPlace place = place_for(sum, {columns}, x);
  const Tensor partials = floats({kernel::row_parts(rows, columns), columns}, x);
  kernel::add_rows(real_of(x), x.data_ptr(),
                   {rows, columns, place.data, place.is_first, partials.data_ptr<float>()},
                   stream_of(x));
  check_launch();
}

Tensor gelu_backward(const Tensor& x, const Tensor& any_gradient, Gelu kind, Tensor& sum) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const Tensor gradient = any_gradient.contiguous();
  Tensor dx = at::empty_like(x);
  const SumPlace place = place_for(sum, {columns}, x);
  const Tensor partials = floats({kernel::row_parts(rows, columns), columns}, x);
  kernel::gelu_backward(
      real_of(x), kind == Gelu::exact, x.data_ptr(), gradient.data_ptr(), dx.data_ptr(),
      {rows, columns, place.data, place.is_first, partials.data_ptr<float>()}, stream_of(x));
  check_launch();
  return dx;
}

}  // namespace laconic::cuda
