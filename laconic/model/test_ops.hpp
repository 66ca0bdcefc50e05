// model/test_ops.hpp — for tests of differentiable operations: inputs, gradients, and twins
// compared.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "laconic/base/test_target.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::test_ops {

// Standard normals in fp64.
inline at::Tensor random(std::vector<std::int64_t> sizes, const char* name, double deviation = 1) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(derive(key_of(3), name), 0, 0, deviation,
              std::span(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x;
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  const double scale = std::max(1e-30, b.to(at::kDouble).abs().max().item<double>());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Value, and gradients of sum(output * fixed noise), of an operation at these inputs.
inline std::vector<at::Tensor> results(const Operation& operation,
                                       const std::vector<at::Tensor>& inputs,
                                       at::ScalarType dtype) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs)
    leaves.push_back(x.to(dtype).detach().clone().requires_grad_(true));
  const at::Tensor y = operation(leaves);
  const at::Tensor noise = random(y.sizes().vec(), "noise").to(dtype);
  y.backward(noise);
  std::vector<at::Tensor> all = {y.detach()};
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

// Fused and composed must agree: fp64 closely, fp32 against composed fp64; on every instruction
// set.
inline void expect_same(const Operation& fused, const Operation& composed,
                        const std::vector<at::Tensor>& inputs) {
  const auto exact = results(composed, inputs, at::kDouble);
  for_each_target([&] {
    const auto in_double = results(fused, inputs, at::kDouble);
    const auto in_float = results(fused, inputs, at::kFloat);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LT(difference(in_double[i], exact[i]), 1e-13) << "result " << i;
      EXPECT_LT(difference(in_float[i], exact[i]), 3e-6) << "result " << i;
    }
  });
}

inline Dropout some_dropout(double probability, std::int64_t samples) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
  std::iota(ids.begin(), ids.end(), 17);
  return {probability, dropout_keys(5, 2, ids)};
}

}  // namespace laconic::test_ops
