#include "laconic/model/deferred.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "laconic/model/linear.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/test_gpt.hpp"

namespace laconic {
namespace {

struct Setting {
  GptShape shape = kTinyShape;
  at::ScalarType dtype = at::kDouble;
  double dropout = 0;
  bool recompute = false;
  int microbatches = 1;
};

std::string text_of(const Setting& s) {
  return fmt::format("{} layers, width {}, {} tokens, vocabulary {}, {}, dropout {}{}",
                     s.shape.layers, s.shape.width, s.shape.context, s.shape.vocabulary,
                     s.dtype == at::kFloat ? "float" : "double", s.dropout,
                     s.recompute ? ", recomputed" : "");
}

at::Tensor drawn(std::vector<std::int64_t> sizes, const char* name) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(derive(key_of(8), name), 0, 0, 1,
              std::span(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x;
}

Batch batch_of(const Setting& setting, int number) {
  const std::int64_t samples = 2, tokens = setting.shape.context;
  const at::Tensor ids =
      some_ids(samples, tokens + 1).roll(number).remainder(setting.shape.vocabulary);
  return {{"ids", ids.narrow(1, 0, tokens).contiguous()},
          {"targets", ids.narrow(1, 1, tokens).contiguous()}};
}

Pass pass_of(const Setting& setting, int number, DeferredWeights* deferred) {
  return {.dropout = setting.dropout,
          .sample_keys = dropout_keys(3, number, {5, 6}),
          .deferred = deferred};
}

// A model that goes through its microbatches in any order of halves, and every gradient that it
// hands from block to block, in order of computation.
class Halves {
 public:
  explicit Halves(const Setting& setting)
      : weights(make_weights(setting.shape, 11, at::TensorOptions().dtype(setting.dtype))),
        setting_(setting) {}

  // Forward, and the first half of backward: or all of it, when there is nothing to defer to.
  void pass(int number, DeferredWeights* deferred) {
    const Batch batch = batch_of(setting_, number);
    const Pass pass = pass_of(setting_, number, deferred);
    const std::int64_t last = block_count(weights.spec) - 1;
    std::vector<Seam> inputs{{}}, outputs;
    for (std::int64_t b = 0; b <= last; ++b) {
      const at::AutoGradMode keep_graph(!setting_.recompute);
      outputs.push_back(forward_block(weights, b, inputs.back(), batch, pass));
      inputs.push_back({outputs.back()[0].detach().requires_grad_(true)});
    }
    at::Tensor gradient = at::scalar_tensor(0.25, outputs.back()[0].options());
    for (std::int64_t b = last; b >= 0; --b) {
      const auto i = static_cast<std::size_t>(b);
      if (setting_.recompute) outputs[i] = forward_block(weights, b, inputs[i], batch, pass);
      backward(outputs[i], {gradient});
      if (b > 0) handed.push_back(gradient = inputs[i][0].grad());
    }
  }

  // As they stand in the leaves.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const Parameter& parameter : weights.parameters) all.push_back(parameter.value.grad());
    all.push_back(head().grad());
    return all;
  }
  const at::Tensor& head() const { return weights.leaf(block_count(weights.spec) - 1, 0); }

  Weights weights;
  std::vector<at::Tensor> handed;

 private:
  Setting setting_;
};

Halves undivided(const Setting& setting) {
  Halves halves(setting);
  for (int m = 0; m < setting.microbatches; ++m) halves.pass(m, nullptr);
  return halves;
}

// `order` has an 'I' and a 'W' for every microbatch; both kinds ascend.
Halves divided(const Setting& setting, const std::string& order) {
  Halves halves(setting);
  std::deque<DeferredWeights> waiting;
  int number = 0;
  for (const char half : order) {
    if (half == 'I') {
      halves.pass(number++, &waiting.emplace_back());
      EXPECT_FALSE(waiting.back().is_empty());
    } else {
      waiting.front().run();
      EXPECT_TRUE(waiting.front().is_empty());
      waiting.pop_front();
    }
  }
  return halves;
}

// All orders in which no W comes before its I.
std::vector<std::string> orders(int inputs, int waiting) {
  if (inputs == 0) return {std::string(static_cast<std::size_t>(waiting), 'W')};
  std::vector<std::string> all;
  for (const std::string& rest : orders(inputs - 1, waiting + 1)) all.push_back("I" + rest);
  if (waiting > 0)
    for (const std::string& rest : orders(inputs, waiting - 1)) all.push_back("W" + rest);
  return all;
}

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(a[i].equal(b[i])) << i;
      EXPECT_EQ(a[i].strides(), b[i].strides()) << i;
    }
  }
}

TEST(Deferred, EveryOrderOfHalvesGivesTheBitsOfAnUndividedBackward) {
  ASSERT_EQ(orders(4, 0).size(), 14);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const double dropout : {0.0, 0.2})
      for (const bool recompute : {false, true}) {
        const Setting setting{
            .dtype = dtype, .dropout = dropout, .recompute = recompute, .microbatches = 4};
        const Halves whole = undivided(setting);
        for (const std::string& order : orders(4, 0)) {
          SCOPED_TRACE(text_of(setting) + ", " + order);
          const Halves parts = divided(setting, order);
          expect_same_bits(parts.handed, whole.handed);
          expect_same_bits(parts.gradients(), whole.gradients());
        }
      }
}

TEST(Deferred, OneForSeveralMicrobatchesRunsThemInTheirOrder) {
  const Setting setting{.dtype = at::kFloat, .dropout = 0.2, .microbatches = 4};
  Halves parts(setting);
  DeferredWeights deferred;
  for (int m = 0; m < setting.microbatches; ++m) parts.pass(m, &deferred);
  deferred.run();
  expect_same_bits(parts.gradients(), undivided(setting).gradients());
}

void expect_undivided_bits(const Setting& setting) {
  SCOPED_TRACE(text_of(setting));
  const Halves whole = undivided(setting);
  const Halves parts = divided(setting, "IIWW");
  expect_same_bits(parts.handed, whole.handed);
  expect_same_bits(parts.gradients(), whole.gradients());
}

TEST(Deferred, BitsAreTheSameInAnyShape) {
  const Key key = derive(key_of(8), "shapes");
  const auto draw = [&](std::uint64_t i, std::int64_t least, std::int64_t most) {
    return least + word_at(key, i) % (most - least + 1);
  };
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::int64_t heads = draw(4 * i, 1, 5);
    expect_undivided_bits({.shape = {.layers = 1,
                                     .width = heads * draw(4 * i + 1, 1, 40),
                                     .heads = heads,
                                     .context = draw(4 * i + 2, 1, 150),
                                     .vocabulary = draw(4 * i + 3, 2, 900)},
                           .dtype = i % 2 == 0 ? at::kFloat : at::kDouble,
                           .dropout = i % 3 == 0 ? 0.1 : 0.0,
                           .microbatches = 2});
  }
}

// Products over so many rows are summed in pieces: a fused multiply-and-add into grad(), the same
// for few rows, would give other bits.
TEST(Deferred, BitsAreTheSameForManyRows) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    expect_undivided_bits(
        {.shape = {.layers = 1, .width = 32, .heads = 1, .context = 1000, .vocabulary = 50},
         .dtype = dtype,
         .microbatches = 2});
}

TEST(Deferred, TheFirstHalfCompletesNormsAndPositionsAndTouchesNoLinearMap) {
  const Setting setting{.dropout = 0.2};
  const Halves whole = undivided(setting);
  Halves parts(setting);
  DeferredWeights deferred;
  parts.pass(0, &deferred);
  int complete = 0;
  for (std::size_t p = 0; p < whole.weights.parameters.size(); ++p) {
    const std::string& name = whole.weights.parameters[p].name;
    const at::Tensor& gradient = parts.weights.parameters[p].value.grad();
    const bool waits = name.find(".c_") != std::string::npos;
    EXPECT_EQ(gradient.defined(), !waits) << name;
    if (waits) continue;
    EXPECT_TRUE(gradient.equal(whole.weights.parameters[p].value.grad())) << name;
    ++complete;
  }
  EXPECT_EQ(complete, 2 + 4 * kTinyShape.layers + 2);
  EXPECT_FALSE(parts.head().grad().defined());
}

double loss_of(const Weights& weights, const Setting& setting) {
  const at::NoGradGuard no_grad;
  Seam seam;
  for (std::int64_t b = 0; b < block_count(weights.spec); ++b)
    seam = forward_block(weights, b, seam, batch_of(setting, 0), pass_of(setting, 0, nullptr));
  return seam[0].item<double>();
}

TEST(Deferred, GradientsOfBothHalvesAreFiniteDifferencesOfTheLoss) {
  const Setting setting{.dropout = 0.2};
  Halves parts = divided(setting, "IW");
  for (std::int64_t b = 0; b < block_count(parts.weights.spec); ++b)
    collect_gradients(parts.weights, b);
  for (std::size_t p = 0; p < parts.weights.parameters.size(); ++p)
    complete_gradient(parts.weights, p);
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < parts.weights.parameters.size(); ++p) {
    const Parameter& parameter = parts.weights.parameters[p];
    const at::Tensor direction = drawn(parameter.value.sizes().vec(), parameter.name.c_str());
    const double step = 1e-5;
    at::Tensor value = parameter.value;
    value.add_(direction, step);
    const double above = loss_of(parts.weights, setting);
    value.sub_(direction, 2 * step);
    const double below = loss_of(parts.weights, setting);
    value.add_(direction, step);
    const double slope = 0.25 * (above - below) / (2 * step);  // pass() weighs the loss so
    EXPECT_NEAR((parameter.gradient * direction).sum().item<double>(), slope,
                1e-7 * std::max(1.0, std::abs(slope)))
        << parameter.name;
  }
}

TEST(Deferred, HeadsFusedAndComposedLeaveTheSameWorkAsTheyDoAtOnce) {
  using Head = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, DeferredWeights*, double);
  const at::Tensor targets = some_ids(1, 7).flatten();
  for (const Head head : {Head{fused::cross_entropy}, Head{composed::cross_entropy}})
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
      for (const bool biased : {false, true}) {
        std::vector<at::Tensor> results[2];
        for (const bool defers : {false, true}) {
          DeferredWeights deferred;
          const at::Tensor x = drawn({7, 12}, "x").to(dtype).requires_grad_(true);
          const at::Tensor weight = drawn({31, 12}, "weight").to(dtype).requires_grad_(true);
          const at::Tensor bias = drawn({31}, "bias").to(dtype).requires_grad_(true);
          const at::Tensor loss = head(x, weight, biased ? bias : at::Tensor(), targets,
                                       defers ? &deferred : nullptr, biased ? 0.1 : 0);
          loss.backward();
          EXPECT_EQ(weight.grad().defined(), !defers);
          EXPECT_EQ(bias.grad().defined(), biased && !defers);
          deferred.run();
          results[defers] = {loss.detach(), x.grad(), weight.grad(), bias.grad()};
        }
        expect_same_bits(results[1], results[0]);
      }
}

TEST(Deferred, TransposedLinearMapsWithAndWithoutBiasLeaveTheSameWorkAsTheyDoAtOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const auto& [rows, in, out] :
         {std::array{5, 4, 3}, {1, 4, 3}, {5, 1, 3}, {5, 4, 1}, {300, 64, 96}, {1000, 48, 17}})
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows, {} to {}, bias {}", rows, in, out, biased));
        std::vector<at::Tensor> results[2];
        for (const bool defers : {false, true}) {
          DeferredWeights deferred;
          const at::Tensor x = drawn({rows, in}, "x").to(dtype).requires_grad_(true);
          const at::Tensor weight = drawn({out, in}, "weight").to(dtype).requires_grad_(true);
          const at::Tensor bias = drawn({out}, "bias").to(dtype).requires_grad_(true);
          for (int microbatch = 0; microbatch < 2; ++microbatch) {
            const at::Tensor y = transposed_linear(x, weight, biased ? bias : at::Tensor(),
                                                   defers ? &deferred : nullptr);
            y.backward(drawn({rows, out}, microbatch == 0 ? "first" : "second").to(dtype));
            results[defers].push_back(y.detach());
          }
          EXPECT_EQ(weight.grad().defined(), !defers);
          deferred.run();
          for (const at::Tensor& leaf : {x, weight, bias}) results[defers].push_back(leaf.grad());
        }
        expect_same_bits(results[1], results[0]);
        const at::Tensor expected = drawn({rows, in}, "x").mm(drawn({out, in}, "weight").t()) +
                                    (biased ? drawn({out}, "bias") : at::zeros({out}, at::kDouble));
        EXPECT_LT((results[1][0] - expected).abs().max().item<double>(),
                  dtype == at::kFloat ? 1e-4 : 1e-12);
      }
}

struct Map {  // leaves of a linear map
  at::Tensor x = drawn({5, 4}, "x").requires_grad_(true);
  at::Tensor weight = drawn({4, 3}, "weight").requires_grad_(true);
  at::Tensor bias = drawn({3}, "bias").requires_grad_(true);
};

TEST(Deferred, NothingIsNotedWithoutAGraph) {
  const Map map;
  DeferredWeights deferred;
  const at::NoGradGuard no_grad;
  const at::Tensor y = linear(map.x, map.weight, map.bias, &deferred);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.equal(linear(map.x, map.weight, map.bias)));
  EXPECT_TRUE(deferred.is_empty());
}

TEST(Deferred, AnInputThatNeedsNoGradientGetsNone) {
  const Map map;
  DeferredWeights deferred;
  const at::Tensor x = map.x.detach();
  linear(x, map.weight, map.bias, &deferred).backward(at::ones({5, 3}, at::kDouble));
  deferred.run();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(map.bias.grad().equal(at::ones({3}, at::kDouble) * 5));
}

TEST(Deferred, FactorsLiveUntilTheyAreUsed) {
  Map map;
  DeferredWeights deferred;
  const at::Tensor left = map.x.detach(), right = at::ones({5, 3}, at::kDouble);
  deferred.add({.weight = map.weight, .bias = map.bias, .left = left, .right = right});
  EXPECT_EQ(left.use_count() + right.use_count(), 4);
  deferred.run();
  EXPECT_EQ(left.use_count() + right.use_count(), 2);
  EXPECT_TRUE(map.weight.grad().equal(left.t().mm(right)));
  deferred.run();
  EXPECT_TRUE(map.weight.grad().equal(left.t().mm(right)));
}

TEST(Deferred, AGradientGivenToBackwardIsNotChanged) {
  const Map map;
  DeferredWeights deferred;
  const at::Tensor given = drawn({5, 3}, "given"), before = given.clone();
  linear(map.x, map.weight, map.bias, &deferred).backward(given);
  for (int i = 0; i < 2; ++i) {  // the second addition must not reach into the first one's tensors
    deferred.add({.weight = map.weight, .bias = map.bias, .left = map.x.detach(), .right = given});
    deferred.run();
  }
  EXPECT_TRUE(given.equal(before));
}

TEST(Deferred, AGraphThatOutlivesItsDeferredWeightsIsRefused) {
  const Map map;
  at::Tensor y;
  {
    DeferredWeights deferred;
    y = linear(map.x, map.weight, map.bias, &deferred);
  }
  EXPECT_ANY_THROW(y.backward(at::ones({5, 3}, at::kDouble)));
  EXPECT_FALSE(map.weight.grad().defined());
}

TEST(Deferred, BackwardTwiceIsRefused) {
  const Map map;
  DeferredWeights deferred;
  const at::Tensor y = linear(map.x, map.weight, map.bias, &deferred);
  y.backward(at::ones({5, 3}, at::kDouble));
  EXPECT_ANY_THROW(y.backward(at::ones({5, 3}, at::kDouble)));
}

TEST(Deferred, AWeightThatCannotTakeAGradientIsRefused) {
  const Map map;
  DeferredWeights deferred;
  EXPECT_ANY_THROW(linear(map.x, map.weight.detach(), map.bias, &deferred));
  EXPECT_ANY_THROW(linear(map.x, map.weight * 2, map.bias, &deferred));
  EXPECT_ANY_THROW(linear(map.x, map.weight, map.bias.detach(), &deferred));
}

}  // namespace
}  // namespace laconic
