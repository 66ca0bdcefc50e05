#include "laconic/runtime/stage.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "laconic/model/test_gpt.hpp"
#include "laconic/tensor/test_alive.hpp"

namespace laconic {
namespace {

struct Input {
  Batch batch;
  Pass pass;
};

Input some_input(std::int64_t samples, double dropout = 0) {
  const at::Tensor ids = some_ids(samples, kTinyShape.context + 1);
  std::vector<std::int64_t> names;
  for (std::int64_t s = 0; s < samples; ++s) names.push_back(100 + s);
  return {{{"ids", ids.narrow(1, 0, kTinyShape.context).contiguous()},
           {"targets", ids.narrow(1, 1, kTinyShape.context).contiguous()}},
          {.dropout = dropout, .sample_keys = dropout_keys(1, 0, names)}};
}

std::vector<at::Tensor> gradients(const Weights& weights) {
  std::vector<at::Tensor> all;
  for (const Parameter& p : weights.parameters) all.push_back(p.gradient);
  return all;
}

double loss_of(Weights& weights, const Input& input) {
  Stage stage(weights, {0, block_count(weights.spec)}, {});
  return stage.forward(0, input.batch, input.pass, {})[0].item<double>();
}

TEST(Stage, GradientsAreThoseOfFiniteDifferences) {
  Weights weights = make_tiny_weights(at::kDouble);
  const Input input = some_input(2, 0.2);
  forward_backward(weights, input.batch, input.pass, 1);
  for (const Parameter& p : weights.parameters) {
    const double step = 1e-5;
    for (const std::int64_t element : {std::int64_t{0}, p.value.numel() / 2, p.value.numel() - 1}) {
      double* x = p.value.data_ptr<double>() + element;
      const double before = *x;
      *x = before + step;
      const double above = loss_of(weights, input);
      *x = before - step;
      const double below = loss_of(weights, input);
      *x = before;
      const double expected = (above - below) / (2 * step);
      EXPECT_NEAR(p.gradient.flatten()[element].item<double>(), expected,
                  1e-8 + 1e-5 * std::abs(expected))
          << p.name << "[" << element << "]";
    }
  }
}

bool is_bfloat16_exactly(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(x.scalar_type()).equal(x);
}

TEST(Stage, GradientsOfShortWeightsAreLongAndCloseToThoseOfLongOnes) {
  Weights rounded = make_tiny_weights(at::kBFloat16), full = make_tiny_weights(at::kFloat);
  for (std::size_t p = 0; p < full.parameters.size(); ++p) {
    const at::Tensor &copy = rounded.parameters[p].copy, &value = rounded.parameters[p].value;
    EXPECT_TRUE(value.equal(full.parameters[p].value)) << "masters do not depend on the precision";
    EXPECT_EQ(copy.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(copy.equal(value.to(at::kBFloat16)));
    EXPECT_TRUE(full.parameters[p].copy.is_same(full.parameters[p].value));
  }
  const Input input = some_input(2);
  for (Weights* weights : {&rounded, &full})
    for (int m = 0; m < 2; ++m) forward_backward(*weights, input.batch, input.pass, 0.5);
  for (std::size_t p = 0; p < full.parameters.size(); ++p) {
    const Parameter& parameter = rounded.parameters[p];
    const at::Tensor &found = parameter.gradient, &exact = full.parameters[p].gradient;
    ASSERT_EQ(found.scalar_type(), at::kFloat) << parameter.name;
    EXPECT_LT((found - exact).norm().item<double>(), 0.05 * exact.norm().item<double>() + 1e-4)
        << parameter.name;
    if (!parameter.is_hidden_matrix) continue;
    EXPECT_FALSE(is_bfloat16_exactly(found)) << parameter.name;
  }
}

TEST(Stage, RecomputationChangesNoBit) {
  for (const double dropout : {0.0, 0.3}) {
    Weights kept = make_tiny_weights(at::kFloat), again = make_tiny_weights(at::kFloat);
    const Input input = some_input(3, dropout);
    EXPECT_EQ(forward_backward(kept, input.batch, input.pass, 0.5),
              forward_backward(again, input.batch, input.pass, 0.5, {.recompute = true}));
    const auto a = gradients(kept), b = gradients(again);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].equal(b[i])) << kept.parameters[i].name;
  }
}

// Bytes that a stage holds of a microbatch between forward and backward, its output included.
std::size_t alive_after_forward(Weights& weights, BlockRange blocks, bool recompute) {
  const Input input = some_input(2);
  const at::Tensor above = at::full({2, kTinyShape.context, kTinyShape.width}, 0.5F);
  const AliveBytes alive;
  Stage stage(weights, blocks, {.recompute = recompute});
  const std::size_t before = AliveBytes::now();
  const Seam output =
      stage.forward(0, input.batch, input.pass, blocks.begin == 0 ? Seam() : Seam{above});
  return AliveBytes::now() - before;
}

// Four blocks: the embedding, two layers, the head. The head's graph is what recomputation leaves:
// its backward comes at once.
TEST(Stage, WithRecomputationTheInputsOfBlocksAreAllThatIsAlive) {
  Weights weights = make_tiny_weights(at::kFloat);
  const std::size_t seam = 2 * kTinyShape.context * kTinyShape.width * sizeof(float);
  EXPECT_EQ(alive_after_forward(weights, {0, 1}, true), seam) << "the output of the embedding";
  EXPECT_EQ(alive_after_forward(weights, {0, 3}, true), 3 * seam);
  EXPECT_EQ(alive_after_forward(weights, {1, 3}, true), 2 * seam) << "the input is somebody else's";
  EXPECT_GT(alive_after_forward(weights, {0, 3}, false), 20 * seam);
  const std::size_t head = alive_after_forward(weights, {3, 4}, false);
  EXPECT_EQ(alive_after_forward(weights, {3, 4}, true), head);
  EXPECT_EQ(alive_after_forward(weights, {2, 4}, true), head + seam);
}

TEST(Stage, MicrobatchesAddUpToTheBatch) {
  Weights whole = make_tiny_weights(at::kDouble), parts = make_tiny_weights(at::kDouble);
  const Input input = some_input(4, 0.1);
  const double loss = forward_backward(whole, input.batch, input.pass, 1);
  double sum = 0;
  for (std::int64_t s = 0; s < 4; ++s)
    sum += 0.25 *
           forward_backward(parts,
                            {{"ids", input.batch["ids"].narrow(0, s, 1)},
                             {"targets", input.batch["targets"].narrow(0, s, 1)}},
                            {.dropout = input.pass.dropout,
                             .sample_keys = {input.pass.sample_keys[static_cast<std::size_t>(s)]}},
                            0.25);
  EXPECT_NEAR(sum, loss, 1e-13);
  const auto a = gradients(whole), b = gradients(parts);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-13) << whole.parameters[i].name;
}

// What a step left half way (a peer was lost, or the step is a shadow) is in no later gradient.
TEST(Stage, NothingOfAStepThatWasGivenUpIsInTheNext) {
  Weights once = make_tiny_weights(at::kFloat), again = make_tiny_weights(at::kFloat);
  const Input input = some_input(2);
  forward_backward(once, input.batch, input.pass, 1);
  {
    Stage stage(again, {0, block_count(again.spec)}, {});
    const Seam loss = stage.forward(0, input.batch, input.pass, {});
    stage.backward(0, {loss[0].new_full({}, 3.0)}, {});
  }
  clear_gradients(again);
  forward_backward(again, input.batch, input.pass, 1);
  const auto a = gradients(once), b = gradients(again);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << once.parameters[i].name;
}

// A block's seam may hold several tensors, one of which a block may only pass on.
TEST(Backward, GoesThroughAllTensorsOfASeamAtOnce) {
  const at::Tensor memory = at::full({2, 3}, 2.0).requires_grad_(true);
  const at::Tensor x = at::full({2, 3}, 3.0).requires_grad_(true);
  const Seam out = {memory, memory * x};  // the first as it came
  backward(out, {at::full({2, 3}, 10.0), at::full({2, 3}, 1.0)});
  EXPECT_TRUE(memory.grad().equal(at::full({2, 3}, 10.0 + 3)));
  EXPECT_TRUE(x.grad().equal(at::full({2, 3}, 2.0)));
}

}  // namespace
}  // namespace laconic
