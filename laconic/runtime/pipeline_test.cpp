#include "laconic/runtime/pipeline.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "laconic/model/test_gpt.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

PipelineInput some_input() {
  const at::Tensor ids = some_ids(2, kTinyShape.context + 1);
  return {.batch = {{"ids", ids.narrow(1, 0, kTinyShape.context).contiguous()},
                    {"targets", ids.narrow(1, 1, kTinyShape.context).contiguous()}},
          .samples = {0, 1}};
}

// Estimates and reports are about steps.
TEST(Pipeline, TimesAreWithoutShadows) {
  Weights weights = make_tiny_weights(at::kFloat);
  Pipeline pipeline(weights, plan_for_one(weights.spec, 2), nullptr, {0}, 0);
  const std::vector<PipelineInput> inputs = {some_input(), some_input()};
  for (std::uint64_t step = 0; step < 3; ++step) {
    PipelineStep shadow{.step = step, .inputs = inputs, .next_samples = {}, .block_done = {}};
    shadow.is_shadow = true;
    const double loss = pipeline.run(shadow).value();
    pipeline.abandon();
    EXPECT_EQ(pipeline.times().forward.count, 2 * step);
    EXPECT_EQ(pipeline.times().backward.count, 2 * step);
    EXPECT_EQ(pipeline.run({.step = step, .inputs = inputs, .next_samples = {}, .block_done = {}})
                  .value(),
              loss);
    pipeline.commit();
  }
  EXPECT_EQ(pipeline.times().forward.count, 6U);
}

// By a quarter, which changes no digit of any number.
TEST(Pipeline, LossAndGradientsAreWeightedOnce) {
  const std::vector<PipelineInput> inputs = {some_input(), some_input()};
  const auto run = [&](double weight) {
    Weights weights = make_tiny_weights(at::kDouble);
    Pipeline pipeline(weights, plan_for_one(weights.spec, 2), nullptr, {0}, 0);
    const StepLoss loss = pipeline.run(
        {.step = 0, .inputs = inputs, .weight = weight, .next_samples = {}, .block_done = {}});
    return std::pair(loss.value(), std::move(weights.parameters));
  };
  const auto [loss, whole] = run(1);
  const auto [less, quarter] = run(0.25);
  EXPECT_EQ(less, loss / 4);
  for (std::size_t p = 0; p < whole.size(); ++p)
    EXPECT_TRUE(quarter[p].gradient.equal(whole[p].gradient.div(4))) << whole[p].name;
}

constexpr int kMicrobatches = 6;

PipelinePlan plan_for_two(const LinkSpec& activation, const LinkSpec& gradient) {
  return {.schedule = lowered(one_forward_one_backward({2, 2, kMicrobatches})),
          .stages = {{0, 2}, {2, 4}},
          .encoded = {},
          .activation = activation,
          .gradient = gradient};
}

void on_two_ranks(const PipelinePlan& plan, const std::function<void(Pipeline&, int rank)>& act) {
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    const int rank = transport.rank();
    Weights weights = make_weights(kTinyShape, 11, at::TensorOptions().dtype(at::kFloat),
                                   held_blocks(plan, rank));
    Pipeline pipeline(weights, plan, &engine, {0, 1}, rank);
    act(pipeline, rank);
    engine.flush();
  });
}

// Not only at the end of the step: memory would hold the activations of all microbatches.
TEST(Pipeline, AnActivationIsKeptUntilItsGradientComes) {
  const LinkSpec delta{"a", parse_codec("quantise:bits=4"), Delta{}};
  on_two_ranks(plan_for_two(delta, {"g", Raw{}, NoMemory{}}), [](Pipeline& pipeline, int rank) {
    for (std::uint64_t step = 0; step < 2; ++step) {
      std::vector<PipelineInput> inputs;
      for (std::uint64_t m = 0; m < kMicrobatches; ++m) {
        inputs.push_back(some_input());
        inputs.back().samples = {2 * m, 2 * m + 1};
      }
      std::size_t kept = 100;
      pipeline.run(
          {.step = step, .inputs = inputs, .next_samples = {}, .block_done = [&](std::int64_t) {
             kept = pipeline.kept();
           }});
      EXPECT_EQ(kept, 0U) << "in the last backward of rank " << rank;
      EXPECT_EQ(pipeline.kept(), 0U) << "rank " << rank;
      pipeline.commit();
    }
  });
}

// A codec that starts from where it ended has something to remember, whatever the configured one.
TEST(Pipeline, AnOverrideMayBringAMemoryAndTakesItAwayAgain) {
  const LinkSpec plain{"a", parse_codec("quantise:bits=4"), NoMemory{}};
  on_two_ranks(plan_for_two(plain, plain), [](Pipeline& pipeline, int) {
    LinkRegistry links;
    pipeline.add_links(links);
    EXPECT_FALSE(links.has_memory());
    links.override_codec(Traffic::pp_gradient, {.codec = LowRank{.rank = 2}});
    EXPECT_TRUE(links.has_memory());
    links.override_codec(Traffic::pp_gradient, {.codec = Quantise{.bits = 6}});
    EXPECT_FALSE(links.has_memory());
  });
  const LinkSpec remembers{"a", LowRank{.rank = 2}, NoMemory{}};
  on_two_ranks(plan_for_two(plain, remembers), [](Pipeline& pipeline, int) {
    LinkRegistry links;
    pipeline.add_links(links);
    links.override_codec(Traffic::pp_gradient, {.is_bypassed = true, .codec = {}});
    EXPECT_TRUE(links.has_memory()) << "it comes back";
  });
}

}  // namespace
}  // namespace laconic
