// Steps of every family on a GPU against the same on the CPU, and against themselves.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/runtime/cuda_graph.hpp"
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

Batch batch_on(at::Device device, std::int64_t tokens = kTokens) {
  const auto draw = [&](std::int64_t most, std::vector<std::int64_t> sizes) {
    return at::randint(most, sizes, at::kLong);
  };
  const at::Tensor ids = draw(kVocabulary, {kBatch, tokens});
  const at::Tensor length = draw(tokens / 2, {kBatch, 1}).add(tokens / 2);
  Batch batch;
  for (auto& [name, field] : std::vector<std::pair<std::string, at::Tensor>>{
           {"ids", ids},
           {"types", draw(2, {kBatch, tokens})},
           {"length", length},
           {"source", draw(kVocabulary, {kBatch, tokens})},
           {"source_length", length},
           {"targets", ids.masked_fill(draw(3, {kBatch, tokens}).eq(0), kNoTarget)},
           {"label", draw(2, {kBatch, 1})},
           {"start", draw(tokens / 2, {kBatch, 1})},
           {"end", draw(tokens / 2, {kBatch, 1})}})
    batch.add(name, field.to(device));
  return batch;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> values;
  std::uint64_t repeated = 0;  // steps
  std::vector<std::string> told = {};
};

at::TensorOptions value_options() {
  return at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
}

Outcome train_some(const Family& family, at::Device device, at::ScalarType dtype, double dropout,
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
      const Outcome exact = train_some(family, at::kCPU, at::kDouble, dropout);
      expect_close(train_some(family, at::kCUDA, at::kDouble, dropout), exact, 1e-10);
      expect_close(train_some(family, at::kCUDA, at::kFloat, dropout), exact, 1e-5);
      const Outcome rounded = train_some(family, at::kCUDA, at::kBFloat16, dropout);
      for (std::size_t i = 0; i < exact.losses.size(); ++i)
        EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.02 * exact.losses[i]);
    }
}

TEST_F(GpuSteps, TheSameBitsEveryTime) {
  for (const Family& family : families())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
      const Outcome a = train_some(family, at::kCUDA, dtype, 0.1),
                    b = train_some(family, at::kCUDA, dtype, 0.1);
      EXPECT_EQ(a.losses, b.losses);
      for (std::size_t i = 0; i < a.values.size(); ++i)
        EXPECT_TRUE(a.values[i].equal(b.values[i])) << "parameter " << i;
    }
}

// How steps by a pipeline go, two microbatches each.
struct PipelineRun {
  at::ScalarType dtype;
  bool records;
  bool is_split = false;  // backward in halves
  std::int64_t dropout_tokens = 0;
};

// All halves of the weights after all others: F0 I0 F1 I1 W0 W1.
PipelinePlan plan_in_halves(const ModelSpec& spec) {
  PipelinePlan plan = plan_for_one(spec, 2);
  plan.schedule.by_rank = {{{Op::forward, 0, 0},
                            {Op::backward_input, 0, 0},
                            {Op::forward, 0, 1},
                            {Op::backward_input, 0, 1},
                            {Op::backward_weight, 0, 0},
                            {Op::backward_weight, 0, 1}}};
  return plan;
}

// Weights of losses vary, as where some rows have no target.
Outcome train_by_pipeline(const Family& family, const PipelineRun& run) {
  at::manual_seed(7);
  Weights weights = make_weights(family, 5, at::TensorOptions().dtype(run.dtype).device(at::kCUDA));
  OptimiserState state = make_optimiser_state(weights.parameters);
  Outcome outcome;
  Pipeline pipeline(weights,
                    run.is_split ? plan_in_halves(weights.spec) : plan_for_one(weights.spec, 2),
                    nullptr, {0}, 0, {.records = run.records, .tell = [&](const std::string& text) {
                                        outcome.told.push_back(text);
                                      }});
  for (int step = 0; step < 9; ++step) {
    std::vector<PipelineInput> inputs;
    for (int m = 0; m < 2; ++m) {
      Pass pass{.dropout = 0.1,
                .sample_keys = dropout_keys(1, 2 * step + m, {4, 5, 6}),
                .dropout_tokens = run.dropout_tokens};
      pass.device_keys = keys_on(at::kCUDA, pass.sample_keys);
      inputs.push_back({.batch = batch_on(at::kCUDA, context_of(family)),
                        .pass = pass,
                        .samples = {},
                        .weight = 1 + 0.25 * m});
    }
    if (step == 6) inputs.front().pass.label_smoothing = 0.1;  // one step is unlike the others
    const StepLoss loss = pipeline.run({.step = 0,
                                        .inputs = inputs,
                                        .weight = 0.5 / (1 + step),
                                        .next_samples = {},
                                        .block_done = {}});
    outcome.losses.push_back(loss.value());
    apply({.epsilon = 1e-3}, state, weights.parameters, 1e-2, 1);
    clear_gradients(weights);
  }
  outcome.repeated = pipeline.repeated();
  for (const Parameter& p : weights.parameters)
    outcome.values.push_back(p.value.detach().to(at::kCPU, at::kDouble));
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (std::size_t i = 0; i < a.values.size(); ++i)
    EXPECT_TRUE(a.values[i].equal(b.values[i])) << "parameter " << i;
}

// Of nine steps the first three and one that is unlike the others are walked.
constexpr std::uint64_t kRepeated = 5;

bool looks_for_tokens(const Family& family) {
  const auto* bert = std::get_if<BertShape>(&family);
  return bert != nullptr && bert->head == BertHead::masked;
}

TEST_F(GpuSteps, RepeatedStepsHaveTheSameBits) {
  for (const Family& family : families())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
      const Outcome a = train_by_pipeline(family, {.dtype = dtype, .records = true});
      expect_same(a, train_by_pipeline(family, {.dtype = dtype, .records = false}));
      EXPECT_EQ(a.repeated, looks_for_tokens(family) ? 0 : kRepeated);
      EXPECT_EQ(a.told, std::vector<std::string>());
    }
}

// Contexts and widths that vectors of eight do not fit into, and corners of attention.
TEST_F(GpuSteps, OddStepsAreRecordedToo) {
  GptShape wide{.layers = 2, .width = 64, .heads = 2, .context = 100, .vocabulary = kVocabulary};
  GptShape narrow = wide;
  narrow.width = 36;
  GptShape odd_heads = wide;
  odd_heads.width = 40;  // heads of 20
  const Family padded = families()[2];
  const auto check = [](const Family& family, at::ScalarType dtype, std::int64_t tokens) {
    SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
    const Outcome a =
        train_by_pipeline(family, {.dtype = dtype, .records = true, .dropout_tokens = tokens});
    expect_same(
        a, train_by_pipeline(family, {.dtype = dtype, .records = false, .dropout_tokens = tokens}));
    EXPECT_EQ(a.repeated, kRepeated);
    EXPECT_EQ(a.told, std::vector<std::string>());
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const GptShape& shape : {wide, narrow, odd_heads}) check(shape, dtype, 0);
    check(padded, dtype, 2 * kTokens);
  }
}

// Gradients add up in the same order, whenever those of weights are computed.
TEST_F(GpuSteps, BackwardInHalvesHasTheSameBits) {
  for (const Family& family : families())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(family), toString(dtype)));
      expect_same(train_by_pipeline(family, {.dtype = dtype, .records = false, .is_split = true}),
                  train_by_pipeline(family, {.dtype = dtype, .records = false}));
    }
}

// A capture that breaks leaves everything as it was: memory comes and goes, and the next succeeds.
TEST_F(GpuSteps, ABrokenCaptureBreaksNothingElse) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const at::Tensor x = at::ones({1 << 20}, options);
  at::Tensor y;
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<CudaGraph> broken = CudaGraph::make();
    ASSERT_NE(broken, nullptr);
    const std::string problem = broken->record([&] {
      y = x.add(1);
      y.sum().item<double>();  // waits
    });
    EXPECT_NE(problem, "");
    y.reset();
    EXPECT_EQ(x.add(2).sum().item<double>(), 3.0 * (1 << 20));
  }
  const std::unique_ptr<CudaGraph> thrown = CudaGraph::make();
  EXPECT_NE(thrown->record([&] { throw ConfigError("the body's own"); }).find("the body's own"),
            std::string::npos);
  const std::unique_ptr<CudaGraph> good = CudaGraph::make();
  EXPECT_EQ(good->record([&] { y = x.add(3); }), "");
  good->repeat();
  EXPECT_EQ(y.sum().item<double>(), 4.0 * (1 << 20));
}

TEST_F(GpuSteps, EveryOptimiser) {
  for (const OptimiserKind kind : {OptimiserKind::adamw, OptimiserKind::adam, OptimiserKind::sgd,
                                   OptimiserKind::lion, OptimiserKind::muon}) {
    SCOPED_TRACE(name_in(kOptimiserKindNames, kind));
    const Outcome cpu = train_some(families().front(), at::kCPU, at::kFloat, 0, kind);
    const Outcome gpu = train_some(families().front(), at::kCUDA, at::kFloat, 0, kind);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-4 * cpu.losses[i]);
  }
}

// Judged on the GPU a step changes what it changes after a wait, bit for bit, or nothing.
TEST_F(GpuSteps, VerdictsAreTheHosts) {
  const auto number = [](const at::Tensor& verdict, Judgement place) {
    return verdict.to(at::kCPU).data_ptr<double>()[static_cast<std::int64_t>(place)];
  };
  for (const double clip : {0.0, 1.0, 1e6}) {
    SCOPED_TRACE(clip);
    std::vector<Parameter> waited, judged;
    for (int p = 0; p < 300; ++p) {  // more than a block of threads
      const at::Tensor value = at::randint(-1000, 1000, {40 + p, 3}, at::kFloat).to(at::kCUDA);
      const at::Tensor gradient = at::randint(-1000, 1000, {40 + p, 3}, at::kFloat).to(at::kCUDA);
      for (auto* parameters : {&waited, &judged})
        parameters->push_back({.name = "w", .value = value.clone(), .gradient = gradient});
      waited.back().copy = waited.back().value;
      judged.back().copy = judged.back().value;
    }
    OptimiserState a = make_optimiser_state(waited), b = make_optimiser_state(judged);
    StepLoss loss;
    loss.add(0.5, at::ones({}, value_options()));
    loss.add(0.5, at::ones({}, value_options()).mul(3));
    const double norm = global_norm(waited);
    apply({}, a, waited, 0.01, clip > 0 && norm > clip ? clip / norm : 1);
    const at::Tensor good = judge(loss, judged, clip, {});
    EXPECT_EQ(number(good, Judgement::norm), norm);
    EXPECT_EQ(number(good, Judgement::is_good), 1);
    EXPECT_EQ(loss.value(), 2);
    apply_judged({}, b, judged, 0.01, good);
    const auto expect_equal = [&] {
      for (std::size_t p = 0; p < waited.size(); ++p) {
        EXPECT_TRUE(judged[p].value.equal(waited[p].value)) << p;
        EXPECT_TRUE(b.moment1[p].equal(a.moment1[p])) << p;
        EXPECT_TRUE(b.moment2[p].equal(a.moment2[p])) << p;
      }
    };
    expect_equal();
    StepLoss bad = loss;
    bad.add(1, at::ones({}, value_options()).div(0));
    const at::Tensor last = judge(bad, judged, clip, good);
    EXPECT_EQ(number(last, Judgement::is_good), 0);
    for (const at::Tensor& verdict :
         {last, judge(loss, judged, clip, last),
          judge(StepLoss(std::numeric_limits<double>::quiet_NaN()), judged, clip, good)}) {
      EXPECT_EQ(number(verdict, Judgement::is_good), 0);
      apply_judged({}, b, judged, 0.01, verdict);
    }
    judged[7].gradient = judged[7].gradient.div(0);
    const at::Tensor spoiled = judge(loss, judged, clip, good);
    EXPECT_EQ(number(spoiled, Judgement::is_good), 0);
    apply_judged({}, b, judged, 0.01, spoiled);
    expect_equal();
  }
}

// Equal gradients give equal parameters, bit for bit.
TEST_F(GpuSteps, UpdatesAreTheCpus) {
  for (const OptimiserKind kind :
       {OptimiserKind::adamw, OptimiserKind::adam, OptimiserKind::sgd, OptimiserKind::lion})
    for (const std::int64_t size : {1, 5, 4096, 16384, 16387, 100003}) {
      const at::Tensor start = at::randint(-1000, 1000, {size}, at::kFloat).div(997);
      const at::Tensor gradient = at::randint(-1000, 1000, {size}, at::kFloat).div(31);
      const bool has_copy = size > 5;  // small ones have none
      std::vector<at::Tensor> values, copies;
      std::vector<double> squares;
      for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA)}) {
        const at::Tensor value = start.to(device).clone().view({size, 1});
        const at::Tensor copy = has_copy ? value.to(at::kBFloat16) : value;
        std::vector<Parameter> parameters = {{.name = "w",
                                              .value = value,
                                              .gradient = gradient.to(device).view({size, 1}),
                                              .copy = copy}};
        OptimiserState state = make_optimiser_state(parameters, kind);
        for (int i = 0; i < 3; ++i)
          apply({.kind = kind, .nesterov = true}, state, parameters, 0.01, 0.37);
        values.push_back(value.to(at::kCPU));
        copies.push_back(copy.to(at::kCPU));
        squares.push_back(squared_norms(parameters).front());
      }
      EXPECT_TRUE(values[0].equal(values[1])) << name_in(kOptimiserKindNames, kind) << " " << size;
      EXPECT_TRUE(copies[0].equal(copies[1])) << name_in(kOptimiserKindNames, kind) << " " << size;
      EXPECT_TRUE(copies[1].equal(values[1].to(copies[1].scalar_type()))) << size;
      EXPECT_NEAR(squares[1], squares[0], 1e-12 * squares[0]);
    }
}

}  // namespace
}  // namespace laconic
