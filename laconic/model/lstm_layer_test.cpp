#include "laconic/model/lstm_layer.hpp"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/model/additive_attention.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/test_ops.hpp"

namespace laconic {
namespace {

using test_ops::difference;
using test_ops::expect_same;
using test_ops::random;

struct LstmCase {
  std::int64_t samples, tokens, inputs, cells, state;
  bool is_reversed = false;
  std::vector<std::int64_t> lengths = {};
};

std::vector<at::Tensor> inputs_of(const LstmCase& c) {
  std::vector<at::Tensor> all = {
      random({c.samples * c.tokens, c.inputs}, "x"), random({4 * c.cells, c.inputs}, "input", 0.5),
      random({4 * c.cells, c.state}, "state", 0.5), random({4 * c.cells}, "input bias"),
      random({4 * c.cells}, "state bias")};
  if (c.state != c.cells) all.push_back(random({c.state, c.cells}, "projection", 0.5));
  return all;
}

LstmWeights weights_of(const std::vector<at::Tensor>& x) {
  return {x[1], x[2], x[3], x[4], x.size() > 5 ? x[5] : at::Tensor()};
}

LstmRun run_of(const LstmCase& c) {
  return {.samples = c.samples,
          .lengths = c.lengths.empty() ? at::Tensor() : at::tensor(c.lengths),
          .is_reversed = c.is_reversed};
}

// Sizes around those of vectors; one sample, one token.
TEST(LstmLayer, FusedEqualsComposed) {
  for (const LstmCase& c : {LstmCase{3, 5, 4, 16, 16},
                            {2, 4, 3, 17, 17},
                            {1, 6, 5, 7, 3},
                            {4, 1, 2, 33, 9},
                            {3, 5, 4, 9, 9, true},
                            {3, 5, 4, 9, 4, false, {5, 1, 3}},
                            {3, 5, 4, 19, 19, true, {2, 5, 4}}}) {
    SCOPED_TRACE(c.cells);
    expect_same([&](const auto& x) { return fused::lstm(x[0], weights_of(x), run_of(c)); },
                [&](const auto& x) { return composed::lstm(x[0], weights_of(x), run_of(c)); },
                inputs_of(c));
  }
}

// What is behind the end of a sample changes nothing before it, in either direction.
TEST(LstmLayer, PaddingPutsOutZerosAndChangesNothing) {
  for (const bool is_reversed : {false, true}) {
    const LstmCase c{2, 5, 4, 9, 9, is_reversed, {3, 5}};
    const std::vector<at::Tensor> inputs = inputs_of(c);
    const at::Tensor whole = lstm(inputs[0], weights_of(inputs), run_of(c)).view({2, 5, 9});
    EXPECT_EQ(whole[0].narrow(0, 3, 2).abs().max().item<double>(), 0);
    const LstmCase cut{1, 3, 4, 9, 9, is_reversed};
    const at::Tensor alone = lstm(inputs[0].narrow(0, 0, 3), weights_of(inputs), run_of(cut));
    EXPECT_LT(difference(whole[0].narrow(0, 0, 3), alone), 1e-14);
  }
}

TEST(LstmLayer, WeightsCanWait) {
  const LstmCase c{3, 5, 4, 9, 4};
  const auto gradients = [&](bool is_deferred) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs_of(c)) leaves.push_back(x.clone().requires_grad_(true));
    DeferredWeights deferred;
    LstmRun run = run_of(c);
    if (is_deferred) run.deferred = &deferred;
    const at::Tensor y = fused::lstm(leaves[0], weights_of(leaves), run);
    y.backward(random(y.sizes().vec(), "noise"));
    for (std::size_t i = 1; i < leaves.size(); ++i)
      EXPECT_EQ(leaves[i].grad().defined(), !is_deferred);
    deferred.run();
    std::vector<at::Tensor> all;
    for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
    return all;
  };
  const auto now = gradients(false), later = gradients(true);
  for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(later[i])) << i;
}

TEST(LstmLayer, StepByStepIsTheWhole) {
  const LstmCase c{2, 4, 3, 9, 5};
  const std::vector<at::Tensor> inputs = inputs_of(c);
  const at::Tensor whole = lstm(inputs[0], weights_of(inputs), run_of(c)).view({2, 4, 5});
  LstmState state;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const at::Tensor x = inputs[0].view({2, 4, 3}).select(1, t);
    EXPECT_LT(difference(lstm_step(x, weights_of(inputs), state), whole.select(1, t)), 1e-14);
  }
}

TEST(AdditiveAttention, FusedEqualsComposed) {
  for (const std::int64_t features : {1, 3, 16, 37})
    expect_same(
        [](const auto& x) { return fused::additive_scores(x[0], x[1], x[2], 2); },
        [](const auto& x) { return composed::additive_scores(x[0], x[1], x[2], 2); },
        {random({2 * 3, features}, "q"), random({2 * 5, features}, "k"), random({features}, "v")});
}

TEST(LstmLayer, NotANumberStaysOne) {
  const LstmCase c{1, 2, 2, 3, 3};
  std::vector<at::Tensor> inputs = inputs_of(c);
  inputs[0][0][0] = std::nan("");
  EXPECT_TRUE(std::isnan(lstm(inputs[0], weights_of(inputs), run_of(c)).sum().item<double>()));
}

}  // namespace
}  // namespace laconic
