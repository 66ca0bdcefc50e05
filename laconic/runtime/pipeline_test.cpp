#include "laconic/runtime/pipeline.hpp"

#include <gtest/gtest.h>

#include "laconic/model/test_gpt.hpp"

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
    const double loss = pipeline.run(shadow);
    pipeline.abandon();
    EXPECT_EQ(pipeline.times().forward.count, 2 * step);
    EXPECT_EQ(pipeline.times().backward.count, 2 * step);
    EXPECT_EQ(pipeline.run({.step = step, .inputs = inputs, .next_samples = {}, .block_done = {}}),
              loss);
    pipeline.commit();
  }
  EXPECT_EQ(pipeline.times().forward.count, 6U);
}

}  // namespace
}  // namespace laconic
