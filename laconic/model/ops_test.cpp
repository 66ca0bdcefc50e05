#include "laconic/model/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "laconic/base/target.hpp"
#include "laconic/base/test_target.hpp"
#include "laconic/model/gpt.hpp"

namespace laconic {
namespace {

// Standard normals in fp64, a leaf.
at::Tensor random(std::vector<std::int64_t> sizes, const char* name, double deviation = 1) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(derive(key_of(3), name), 0, 0, deviation,
              std::span(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const double scale = std::max(1e-30, b.to(at::kDouble).abs().max().item<double>());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Value, and gradients of sum(output * fixed noise), of an operation at these inputs.
std::vector<at::Tensor> results(const Operation& operation, const std::vector<at::Tensor>& inputs,
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
void expect_same(const Operation& fused, const Operation& composed,
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

Dropout some_dropout(double probability, std::int64_t samples) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
  std::iota(ids.begin(), ids.end(), 17);
  return {probability, dropout_keys(5, 2, ids)};
}

TEST(Ops, GeluEqualsAtensAtEverySize) {
  for (const std::int64_t size : {1, 3, 7, 16, 17, 63, 64, 65, 20000}) {
    SCOPED_TRACE(size);
    expect_same([](const auto& x) { return fused::gelu(x[0]); },
                [](const auto& x) { return composed::gelu(x[0]); }, {random({size}, "x", 3)});
  }
}

TEST(Ops, GeluIsDefinedAtTheEndsOfTheRange) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::tensor({-1e4, -100.0, 0.0, 100.0, 1e4}).to(dtype).requires_grad_(true);
    const at::Tensor y = fused::gelu(x);
    y.sum().backward();
    EXPECT_LT(difference(y.detach(), at::tensor({0.0, 0.0, 0.0, 100.0, 1e4})), 1e-30);
    EXPECT_LT(difference(x.grad(), at::tensor({0.0, 0.0, 0.5, 1.0, 1.0})), 1e-20);
    const at::Tensor nan = at::tensor({std::nan("")}).to(dtype);
    EXPECT_TRUE(std::isnan(fused::gelu(nan).item<double>()));
  }
}

TEST(Ops, DropoutMaskIsTheSameFusedAndComposed) {
  for (const double probability : {0.0, 0.1, 0.5, 0.9}) {
    for (const std::int64_t samples : {1, 3}) {
      const Dropout dropout = some_dropout(probability, samples);
      expect_same([&](const auto& x) { return fused::dropout_add(x[0], x[1], dropout); },
                  [&](const auto& x) { return composed::dropout_add(x[0], x[1], dropout); },
                  {random({samples * 5, 13}, "residual"), random({samples * 5, 13}, "x")});
    }
  }
}

TEST(Ops, DropoutKeepsTheMean) {
  const at::Tensor x = random({64, 1024}, "x").fill_(1);
  const at::Tensor y = fused::dropout_add(x - x, x, some_dropout(0.3, 4));
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.01);
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 0.01);
}

TEST(Ops, ADropoutMaskBelongsToTheSampleNotToItsPlaceInTheBatch) {
  const at::Tensor x = random({4 * 7, 9}, "x");
  const Dropout all = some_dropout(0.5, 4);
  const at::Tensor whole = fused::dropout_add(x - x, x, all);
  const Dropout last{0.5, {all.sample_keys[3]}};
  const at::Tensor part = x.narrow(0, 21, 7);
  EXPECT_TRUE(whole.narrow(0, 21, 7).equal(fused::dropout_add(part - part, part, last)));
}

TEST(Ops, AttentionEqualsTheTextbookFormAcrossTileBorders) {
  for (const std::int64_t tokens : {1, 2, 5, 63, 64, 65, 130}) {
    for (const double probability : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, dropout " << probability);
      const std::int64_t samples = 2, heads = 3, width = 24;
      const Dropout dropout = some_dropout(probability, samples);
      expect_same(
          [&](const auto& x) { return fused::causal_attention(x[0], samples, heads, dropout); },
          [&](const auto& x) { return composed::causal_attention(x[0], samples, heads, dropout); },
          {random({samples * tokens, 3 * width}, "qkv")});
    }
  }
}

TEST(Ops, CrossEntropyEqualsAtens) {
  for (const std::int64_t vocabulary : {1, 5, 64, 257, 1000}) {
    SCOPED_TRACE(vocabulary);
    const std::int64_t rows = 11;
    std::vector<std::int64_t> ids(rows);
    for (std::int64_t r = 0; r < rows; ++r) ids[static_cast<std::size_t>(r)] = r * 7 % vocabulary;
    const at::Tensor targets = at::tensor(ids);
    expect_same([&](const auto& x) { return fused::cross_entropy(x[0], x[1], {}, targets); },
                [&](const auto& x) { return composed::cross_entropy(x[0], x[1], {}, targets); },
                {random({rows, 16}, "x"), random({vocabulary, 16}, "weight")});
  }
}

TEST(Ops, CrossEntropyLeavesOutRowsWithoutATarget) {
  const std::int64_t none = kNoTarget;
  for (const std::vector<std::int64_t>& ids :
       {std::vector<std::int64_t>{3, none, 0, none, 6}, {none, none, none, none, none}}) {
    const at::Tensor targets = at::tensor(ids);
    const at::Tensor x = random({5, 16}, "x"), weight = random({7, 16}, "weight");
    expect_same([&](const auto& in) { return fused::cross_entropy(in[0], in[1], {}, targets); },
                [&](const auto& in) { return composed::cross_entropy(in[0], in[1], {}, targets); },
                {x, weight});
    double sum = 0;
    const at::Tensor logits = x.mm(weight.t());
    for (std::int64_t r = 0; r < 5; ++r)
      if (const std::int64_t target = ids[static_cast<std::size_t>(r)]; target != none)
        sum += (logits[r].logsumexp(0) - logits[r][target]).item<double>();
    EXPECT_NEAR(fused::cross_entropy(x, weight, {}, targets).item<double>(), sum / 5, 1e-5);
    at::Tensor leaf = x.detach().requires_grad_(true);
    fused::cross_entropy(leaf, weight, {}, targets).backward();
    for (std::int64_t r = 0; r < 5; ++r)
      EXPECT_EQ(leaf.grad()[r].abs().max().item<double>() == 0,
                ids[static_cast<std::size_t>(r)] == none);
  }
}

TEST(Ops, CrossEntropyOfHugeLogitsIsFiniteAndOfInfiniteOnesIsNot) {
  const at::Tensor weight = at::tensor({1.0, -1.0}).view({2, 1}).to(at::kFloat);
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0});
  const auto loss = [&](double x) {
    return fused::cross_entropy(at::tensor({x}).view({1, 1}).to(at::kFloat), weight, {}, targets)
        .item<double>();
  };
  EXPECT_EQ(loss(1e4), 0);
  EXPECT_EQ(loss(-1e4), 2e4);
  EXPECT_TRUE(std::isnan(loss(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isnan(loss(std::nan(""))));
}

TEST(Ops, OneNotANumberAnywhereReachesTheResult) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t at : {0, 5, 31, 69}) {
      at::Tensor weight = random({70, 8}, "weight").to(dtype);
      weight[at][3] = std::nan("");
      const at::Tensor targets = at::tensor(std::vector<std::int64_t>{1, 2});
      const at::Tensor x = random({2, 8}, "x").to(dtype);
      EXPECT_TRUE(std::isnan(fused::cross_entropy(x, weight, {}, targets).item<double>())) << at;
      at::Tensor qkv = random({70, 24}, "qkv").to(dtype);
      qkv[at][9] = std::nan("");  // in a key: every later query sees it
      const at::Tensor mixed = fused::causal_attention(qkv, 1, 1, {});
      EXPECT_TRUE(mixed[69].isnan().all().item<bool>()) << at;
      EXPECT_FALSE(mixed.narrow(0, 0, at).isnan().any().item<bool>()) << at;
    }
  }
}

}  // namespace
}  // namespace laconic
