// Steps of every family on a GPU against the same on the CPU, and against themselves.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/target.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/test_gpu.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kTokens = 24, kVocabulary = 101, kBatch = 3;

std::vector<Family> families() {
  std::vector<Family> all = {
      GptShape{.layers = 2, .width = 64, .heads = 2, .context = kTokens, .vocabulary = kVocabulary},
      LlamaShape{.layers = 2,
                 .width = 64,
                 .heads = 4,
                 .key_heads = 2,
                 .head_width = 16,
                 .hidden = 96,
                 .context = kTokens,
                 .vocabulary = kVocabulary},
      Seq2SeqShape{.layers = 1,
                   .decoder_layers = 1,
                   .width = 32,
                   .heads = 2,
                   .hidden = 64,
                   .context = kTokens,
                   .target_context = kTokens,
                   .vocabulary = kVocabulary}};
  for (const BertHead head : {BertHead::masked, BertHead::classify, BertHead::span})
    all.push_back(BertShape{.layers = 2,
                            .width = 64,
                            .heads = 2,
                            .hidden = 128,
                            .context = kTokens,
                            .vocabulary = kVocabulary,
                            .head = head});
  return all;
}

Batch batch_on(at::Device device) {
  const auto draw = [&](std::int64_t most, std::vector<std::int64_t> sizes) {
    return at::randint(most, sizes, at::kLong);
  };
  const at::Tensor ids = draw(kVocabulary, {kBatch, kTokens});
  const at::Tensor length = draw(kTokens / 2, {kBatch, 1}).add(kTokens / 2);
  Batch batch;
  for (auto& [name, field] : std::vector<std::pair<std::string, at::Tensor>>{
           {"ids", ids},
           {"types", draw(2, {kBatch, kTokens})},
           {"length", length},
           {"source", draw(kVocabulary, {kBatch, kTokens})},
           {"source_length", length},
           {"targets", ids.masked_fill(draw(3, {kBatch, kTokens}).eq(0), kNoTarget)},
           {"label", draw(2, {kBatch, 1})},
           {"start", draw(kTokens / 2, {kBatch, 1})},
           {"end", draw(kTokens / 2, {kBatch, 1})}})
    batch.add(name, field.to(device));
  return batch;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> values;
};

Outcome train(const Family& family, at::Device device, at::ScalarType dtype, double dropout,
              OptimiserKind kind = OptimiserKind::adamw) {
  at::manual_seed(7);
  Weights weights = make_weights(family, 5, at::TensorOptions().dtype(dtype).device(device));
  OptimiserState state = make_optimiser_state(weights.parameters, kind);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    Pass pass{.dropout = dropout, .sample_keys = dropout_keys(1, step, {4, 5, 6})};
    // Keys come to a GPU in two ways.
    if (device.is_cuda() && step > 0) pass.device_keys = keys_on(device, pass.sample_keys);
    // Two microbatches: gradients add up.
    double loss = forward_backward(weights, batch_on(device), pass, 0.5);
    loss += forward_backward(weights, batch_on(device), pass, 0.5);
    outcome.losses.push_back(loss / 2);
    const double norm = global_norm(weights.parameters);
    apply({.kind = kind, .epsilon = 1e-3}, state, weights.parameters, 1e-2,
          norm > 1 ? 1 / norm : 1);
    clear_gradients(weights);
  }
  for (const Parameter& p : weights.parameters)
    outcome.values.push_back(p.value.detach().to(at::kCPU, at::kDouble));
  return outcome;
}

class GpuSteps : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    at::globalContext().setDeterministicAlgorithms(true, true);
    cuda::prepare(true);
  }
};

void expect_close(const Outcome& a, const Outcome& b, double limit) {
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], limit * std::abs(b.losses[i])) << "step " << i;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    // Some gradients are zero but for rounding, as those of keys' biases.
    const double scale = std::max(0.01, b.values[i].abs().max().item<double>());
    EXPECT_LT(a.values[i].sub(b.values[i]).abs().max().item<double>(), 10 * limit * scale)
        << "parameter " << i;
  }
}

TEST_F(GpuSteps, EveryFamilyTrainsAsOnTheCpu) {
  for (const Family& family : families())
    for (const double dropout : {0.0, 0.1}) {
      SCOPED_TRACE(fmt::format("{}, dropout {}", to_text(family), dropout));
      const Outcome exact = train(family, at::kCPU, at::kDouble, dropout);
      expect_close(train(family, at::kCUDA, at::kDouble, dropout), exact, 1e-10);
      expect_close(train(family, at::kCUDA, at::kFloat, dropout), exact, 1e-5);
      const Outcome rounded = train(family, at::kCUDA, at::kBFloat16, dropout);
      for (std::size_t i = 0; i < exact.losses.size(); ++i)
        EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.02 * exact.losses[i]);
    }
}

TEST_F(GpuSteps, TheSameBitsEveryTime) {
  for (const Family& family : families())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
      const Outcome a = train(family, at::kCUDA, dtype, 0.1),
                    b = train(family, at::kCUDA, dtype, 0.1);
      EXPECT_EQ(a.losses, b.losses);
      for (std::size_t i = 0; i < a.values.size(); ++i)
        EXPECT_TRUE(a.values[i].equal(b.values[i])) << "parameter " << i;
    }
}

// Steps by a pipeline, two microbatches each, of which the later ones are repetitions, or none is.
Outcome train_by_pipeline(const Family& family, at::ScalarType dtype, bool records) {
  at::manual_seed(7);
  Weights weights = make_weights(family, 5, at::TensorOptions().dtype(dtype).device(at::kCUDA));
  OptimiserState state = make_optimiser_state(weights.parameters);
  Pipeline pipeline(weights, plan_for_one(weights.spec, 2), nullptr, {0}, 0, {.records = records});
  Outcome outcome;
  for (int step = 0; step < 9; ++step) {
    std::vector<PipelineInput> inputs;
    for (int m = 0; m < 2; ++m) {
      Pass pass{.dropout = 0.1, .sample_keys = dropout_keys(1, 2 * step + m, {4, 5, 6})};
      pass.device_keys = keys_on(at::kCUDA, pass.sample_keys);
      inputs.push_back({.batch = batch_on(at::kCUDA), .pass = pass, .samples = {}});
    }
    // One step is unlike the others.
    const double weight = step == 6 ? 0.25 : 0.5;
    outcome.losses.push_back(pipeline.run(
        {.step = 0, .inputs = inputs, .weight = weight, .next_samples = {}, .block_done = {}}));
    apply({.epsilon = 1e-3}, state, weights.parameters, 1e-2, 1);
    clear_gradients(weights);
  }
  for (const Parameter& p : weights.parameters)
    outcome.values.push_back(p.value.detach().to(at::kCPU, at::kDouble));
  return outcome;
}

TEST_F(GpuSteps, RepeatedStepsHaveTheSameBits) {
  for (const Family& family : families())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
      const Outcome a = train_by_pipeline(family, dtype, true),
                    b = train_by_pipeline(family, dtype, false);
      EXPECT_EQ(a.losses, b.losses);
      for (std::size_t i = 0; i < a.values.size(); ++i)
        EXPECT_TRUE(a.values[i].equal(b.values[i])) << "parameter " << i;
    }
}

TEST_F(GpuSteps, EveryOptimiser) {
  for (const OptimiserKind kind : {OptimiserKind::adamw, OptimiserKind::adam, OptimiserKind::sgd,
                                   OptimiserKind::lion, OptimiserKind::muon}) {
    SCOPED_TRACE(name_in(kOptimiserKindNames, kind));
    const Outcome cpu = train(families().front(), at::kCPU, at::kFloat, 0, kind);
    const Outcome gpu = train(families().front(), at::kCUDA, at::kFloat, 0, kind);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-4 * cpu.losses[i]);
  }
}

// Equal gradients give equal parameters, bit for bit.
TEST_F(GpuSteps, UpdatesAreTheCpus) {
  for (const OptimiserKind kind :
       {OptimiserKind::adamw, OptimiserKind::adam, OptimiserKind::sgd, OptimiserKind::lion})
    for (const std::int64_t size : {1, 5, 4096, 16384, 16387, 100003}) {
      const at::Tensor start = at::randint(-1000, 1000, {size}, at::kFloat).div(997);
      const at::Tensor gradient = at::randint(-1000, 1000, {size}, at::kFloat).div(31);
      std::vector<at::Tensor> values;
      std::vector<double> squares;
      for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA)}) {
        const at::Tensor value = start.to(device).clone().view({size, 1});
        std::vector<Parameter> parameters = {
            {.name = "w", .value = value, .gradient = gradient.to(device).view({size, 1})}};
        OptimiserState state = make_optimiser_state(parameters, kind);
        for (int i = 0; i < 3; ++i)
          apply({.kind = kind, .nesterov = true}, state, parameters, 0.01, 0.37);
        values.push_back(value.to(at::kCPU));
        squares.push_back(squared_norms(parameters).front());
      }
      EXPECT_TRUE(values[0].equal(values[1])) << name_in(kOptimiserKindNames, kind) << " " << size;
      EXPECT_NEAR(squares[1], squares[0], 1e-12 * squares[0]);
    }
}

}  // namespace
}  // namespace laconic
