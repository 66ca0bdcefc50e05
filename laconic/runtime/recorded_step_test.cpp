// Which steps are recorded and repeated, with a graph that does on the CPU what it has recorded.
#include "laconic/runtime/recorded_step.hpp"

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "laconic/model/test_gpt.hpp"
#include "laconic/report/trace.hpp"

namespace laconic {
namespace {

constexpr int kTwoInputs = 2;

// What a repetition writes is where it was when it was recorded.
class FakeGraph final : public CudaGraph {
 public:
  FakeGraph(Weights& weights, std::string problem)
      : weights_(weights), problem_(std::move(problem)) {}

  std::string record(const std::function<void()>& body) override {
    body();
    body_ = body;
    for (const Parameter& p : weights_.parameters) gradients_.push_back(p.gradient);
    return problem_;
  }
  void repeat() override {
    clear_gradients(weights_);
    const at::AutoGradMode as_when_recorded(true);
    body_();
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < gradients_.size(); ++p)
      gradients_[p].copy_(weights_.parameters[p].gradient);
  }

 private:
  Weights& weights_;
  std::string problem_;
  std::function<void()> body_;
  std::vector<at::Tensor> gradients_;
};

class RecordedSteps : public testing::Test {
 protected:
  std::vector<PipelineInput> inputs_of(int step, std::int64_t tokens) const {
    std::vector<PipelineInput> inputs;
    for (int m = 0; m < kTwoInputs; ++m) {
      const at::Tensor ids = some_ids(2, tokens + 1).add(3 * step + m).remainder(31);
      inputs.push_back({.batch = {{"ids", ids.narrow(1, 0, tokens).contiguous()},
                                  {"targets", ids.narrow(1, 1, tokens).contiguous()}},
                        .samples = {},
                        .weight = 1 + 0.125 * m * step});
    }
    return inputs;
  }
  StepLoss run(int step, std::int64_t tokens = kTinyShape.context) {
    const std::vector<PipelineInput> inputs = inputs_of(step, tokens);
    return recorded_.run({.step = 0, .inputs = inputs, .weight = 1.0 / (2 + step)}, walk_);
  }
  // The same by itself, compared bit by bit.
  void expect_step(int step, std::int64_t tokens = kTinyShape.context) {
    SCOPED_TRACE(fmt::format("step {}", step));
    const double loss = run(step, tokens).value();
    Weights plain = make_tiny_weights(at::kDouble);
    Pipeline pipeline(plain, plan_for_one(plain.spec, kTwoInputs), nullptr, {0}, 0);
    const std::vector<PipelineInput> inputs = inputs_of(step, tokens);
    EXPECT_EQ(pipeline.run({.step = 0, .inputs = inputs, .weight = 1.0 / (2 + step)}).value(),
              loss);
    for (std::size_t p = 0; p < plain.parameters.size(); ++p)
      EXPECT_TRUE(weights_.parameters[p].gradient.equal(plain.parameters[p].gradient))
          << plain.parameters[p].name;
    clear_gradients(weights_);
  }

  Weights weights_ = make_tiny_weights(at::kDouble);
  Pipeline pipeline_{weights_, plan_for_one(weights_.spec, kTwoInputs), nullptr, {0}, 0};
  std::string problem_;
  int graphs_ = 0, walks_ = 0, failures_ = 0;  // failures: walks to come that find no memory
  std::vector<std::string> told_;
  Trace trace_{0};
  const RecordedStep::Go walk_ = [this](const PipelineStep& step) {
    ++walks_;
    if (failures_ > 0 && failures_-- > 0) {
      // As if it had come half way.
      weights_.parameters.back().gradient = at::ones_like(weights_.parameters.back().value);
      throw c10::OutOfMemoryError({"walk", __FILE__, __LINE__}, "no memory");
    }
    return pipeline_.run(step);
  };
  RecordedStep recorded_{weights_,
                         {.trace = &trace_,
                          .tell = [this](const std::string& text) { told_.push_back(text); },
                          .make_graph =
                              [this] {
                                ++graphs_;
                                return std::make_unique<FakeGraph>(weights_, problem_);
                              }}};
};

TEST_F(RecordedSteps, AlikeOnesAreRepeatedWithNewFieldsAndWeights) {
  for (int step = 0; step < 3; ++step) expect_step(step);
  EXPECT_EQ(recorded_.repeated(), 0U);
  for (int step = 3; step < 6; ++step) expect_step(step);
  EXPECT_EQ(recorded_.repeated(), 3U);
  expect_step(6, kTinyShape.context - 2);  // shorter: the usual way
  EXPECT_EQ(recorded_.repeated(), 3U);
  expect_step(7);
  EXPECT_EQ(recorded_.repeated(), 4U);
  EXPECT_EQ(graphs_, 1);
  std::uint64_t spans = 0;
  for (const TraceTotal& total : trace_.summary())
    if (total.name == "repeat") spans += total.count;
  EXPECT_EQ(spans, 4U);
}

TEST_F(RecordedSteps, WhatCannotBeRecordedIsSaidOnceAndDoneAllTheSame) {
  problem_ = "something waits";
  for (int step = 0; step < 8; ++step) expect_step(step);
  EXPECT_EQ(recorded_.repeated(), 0U);
  EXPECT_EQ(graphs_, 1);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_NE(told_[0].find("something waits"), std::string::npos) << told_[0];
}

TEST_F(RecordedSteps, AGraphGivesWayWhereThereIsNoRoomForBoth) {
  for (int step = 0; step < 5; ++step) expect_step(step);
  EXPECT_EQ(recorded_.repeated(), 2U);
  failures_ = 1;
  expect_step(5, kTinyShape.context - 2);
  EXPECT_EQ(failures_, 0);
  for (int step = 6; step < 10; ++step) expect_step(step);
  EXPECT_EQ(graphs_, 2);  // recorded anew
  EXPECT_EQ(recorded_.repeated(), 3U);
  EXPECT_TRUE(told_.empty());
}

TEST_F(RecordedSteps, WithoutAGraphThereIsNothingToGiveWay) {
  failures_ = 1;
  EXPECT_THROW(run(0), c10::OutOfMemoryError);
  EXPECT_EQ(walks_, 1);
  clear_gradients(weights_);
  for (int step = 0; step < 5; ++step) expect_step(step);
  failures_ = 2;
  EXPECT_THROW(run(5, kTinyShape.context - 2), c10::OutOfMemoryError);
}

TEST_F(RecordedSteps, GradientsOfAnotherStepAreRefused) {
  run(0);
  EXPECT_THROW(run(1), std::logic_error);
}

}  // namespace
}  // namespace laconic
