// Every operation on a GPU against itself on the CPU.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/target.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/test_ops.hpp"
#include "laconic/tensor/test_gpu.hpp"

namespace laconic {
namespace {

using test_ops::difference;
using test_ops::Operation;
using test_ops::random;
using test_ops::some_dropout;

class GpuOps : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    at::globalContext().setDeterministicAlgorithms(true, true);
    cuda::prepare(true);
  }
  void TearDown() override {
    if (!IsSkipped()) at::globalContext().setDeterministicAlgorithms(false, false);
  }
};

// Value and gradients, as test_ops::results(), on a device.
std::vector<at::Tensor> results_on(at::Device device, const Operation& operation,
                                   const std::vector<at::Tensor>& inputs, at::ScalarType dtype) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs)
    leaves.push_back(x.to(dtype).to(device).detach().clone().requires_grad_(true));
  const at::Tensor y = operation(leaves);
  y.backward(random(y.sizes().vec(), "noise").to(y.options().requires_grad(false)));
  std::vector<at::Tensor> all = {y.detach().to(at::kCPU)};
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad().to(at::kCPU));
  return all;
}

// Against double on the CPU. Inputs are what bfloat16 can hold, so that only arithmetic differs.
void expect_like_cpu(const Operation& operation, std::vector<at::Tensor> inputs,
                     double short_limit = 0.02) {
  for (at::Tensor& x : inputs) x = x.to(at::kBFloat16).to(at::kDouble);
  const auto exact = results_on(at::kCPU, operation, inputs, at::kDouble);
  const auto limits = {
      std::pair{at::kDouble, 1e-10}, {at::kFloat, 1e-5}, {at::kBFloat16, short_limit}};
  for (const auto& [dtype, limit] : limits) {
    const auto found = results_on(at::kCUDA, operation, inputs, dtype);
    const auto again = results_on(at::kCUDA, operation, inputs, dtype);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LT(difference(found[i], exact[i]), limit) << toString(dtype) << ", result " << i;
      EXPECT_TRUE(found[i].equal(again[i])) << toString(dtype) << ", result " << i << " twice";
    }
  }
}

TEST_F(GpuOps, Activations) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{8}, {3, 16}, {700, 264}, {33, 3072}}) {
    expect_like_cpu([](const auto& x) { return gelu(x[0]); }, {random(sizes, "x", 2)});
    expect_like_cpu([](const auto& x) { return exact_gelu(x[0]); }, {random(sizes, "x", 2)});
    expect_like_cpu([](const auto& x) { return swiglu(x[0], x[1]); },
                    {random(sizes, "x", 2), random(sizes, "y")});
  }
}

TEST_F(GpuOps, Norms) {
  for (const std::int64_t width : {8, 64, 256, 264, 768, 1024, 1032, 2048, 2056, 4096, 8192}) {
    SCOPED_TRACE(width);
    for (const std::int64_t rows : {1, 5, 700, 3000}) {
      if (rows > 700 && width > 1024) continue;
      const at::Tensor x = random({rows, width}, "x"), y = random({rows, width}, "y");
      const at::Tensor w = random({width}, "w"), b = random({width}, "b");
      expect_like_cpu([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {x, w, b});
      expect_like_cpu([](const auto& t) { return rms_norm(t[0], t[1], 1e-5); }, {x, w});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = fork_layer_norm(t[0], t[1], t[2], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, w, b});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = add_layer_norm(t[0], t[1], {}, t[2], t[3], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, y, w, b});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = add_rms_norm(t[0], t[1], {}, t[2], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, y, w});
    }
  }
}

TEST_F(GpuOps, LinearMaps) {
  const at::Tensor x = random({96, 64}, "x"), w = random({64, 48}, "w", 0.2),
                   wt = random({48, 64}, "wt", 0.2), b = random({48}, "b");
  expect_like_cpu([](const auto& t) { return linear(t[0], t[1], t[2]); }, {x, w, b});
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], t[2]); }, {x, wt, b});
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], {}); }, {x, wt});
  expect_like_cpu([](const auto& t) { return gelu_linear(t[0], t[1], t[2]); }, {x, w, b}, 0.03);
  expect_like_cpu([](const auto& t) { return exact_gelu_linear(t[0], t[1], t[2]); }, {x, wt, b},
                  0.03);
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], t[2]); },
                  {x, random({3, 64}, "few", 0.2), random({3}, "c")});
}

TEST_F(GpuOps, DropoutDropsTheSame) {
  for (const std::int64_t width : {8, 40, 768}) {
    const Dropout dropout = some_dropout(0.3, 4);
    expect_like_cpu([&](const auto& t) { return dropout_add(t[0], t[1], dropout); },
                    {random({20, width}, "x"), random({20, width}, "y")});
  }
}

TEST_F(GpuOps, Rotation) {
  const at::Tensor c = random({12, 16}, "c").to(at::kBFloat16).to(at::kDouble),
                   s = random({12, 16}, "s").to(at::kBFloat16).to(at::kDouble);
  expect_like_cpu(
      [&](const auto& t) {
        return rotate(t[0], 3, 4, c.to(t[0].options().requires_grad(false)),
                      s.to(t[0].options().requires_grad(false)));
      },
      {random({30, 128}, "x")});
}

TEST_F(GpuOps, Embedding) {
  for (const std::int64_t rows : {2, 64, 65, 500}) {
    for (const std::int64_t count : {1, 31, 32, 33, 1000}) {
      const at::Tensor ids = at::randint(std::min<std::int64_t>(rows, 40), {count}, at::kLong);
      expect_like_cpu([&](const auto& t) { return table_rows(t[0], ids.to(t[0].device())); },
                      {random({rows, 72}, "table")});
    }
  }
}

TEST_F(GpuOps, Attention) {
  for (const std::int64_t tokens : {16, 64, 200}) {
    SCOPED_TRACE(tokens);
    expect_like_cpu([](const auto& t) { return causal_attention(t[0], 2, 4, {}); },
                    {random({2 * tokens, 3 * 4 * 64}, "x")}, 0.04);
    const auto with = [&](std::int64_t key_heads, bool is_causal, const at::Tensor& lengths) {
      expect_like_cpu(
          [=](const auto& t) {
            return attention(
                t[0], t[1], t[2],
                {.samples = 2, .heads = 4, .key_heads = key_heads, .is_causal = is_causal},
                lengths.defined() ? lengths.to(t[0].device()) : lengths, {});
          },
          {random({2 * tokens, 4 * 64}, "q"), random({2 * tokens, key_heads * 64}, "k"),
           random({2 * tokens, key_heads * 64}, "v")},
          0.04);
    };
    with(4, true, {});
    with(2, true, {});
    with(4, false, {});
    with(4, false, at::tensor({tokens, tokens / 2}));
  }
  const Dropout dropout = some_dropout(0.2, 2);
  expect_like_cpu([&](const auto& t) { return causal_attention(t[0], 2, 4, dropout); },
                  {random({2 * 24, 3 * 4 * 8}, "x")}, 0.05);
}

TEST_F(GpuOps, CrossEntropy) {
  for (const std::int64_t vocabulary : {3, 100, 257, 1000}) {
    SCOPED_TRACE(vocabulary);
    at::Tensor targets = at::randint(vocabulary, {40}, at::kLong);
    targets.narrow(0, 3, 4).fill_(kNoTarget);
    const at::Tensor x = random({40, 64}, "x"), w = random({vocabulary, 64}, "w", 0.3),
                     b = random({vocabulary}, "b");
    for (const double smoothing : {0.0, 0.1}) {
      expect_like_cpu(
          [&](const auto& t) {
            return cross_entropy(t[0], t[1], {}, targets.to(t[0].device()), nullptr, smoothing);
          },
          {x, w}, 0.04);
      expect_like_cpu(
          [&](const auto& t) {
            return cross_entropy(t[0], t[1], t[2], targets.to(t[0].device()), nullptr, smoothing);
          },
          {x, w, b}, 0.04);
    }
  }
}

}  // namespace
}  // namespace laconic
