#include "laconic/runtime/pipeline.hpp"

#include <gtest/gtest.h>

#include "laconic/model/test_gpt.hpp"

namespace laconic {
namespace {

PipelineInput some_input() {
  const at::Tensor ids = some_ids(2, kTinyShape.context + 1);
  return {.microbatch = {ids.narrow(1, 0, kTinyShape.context).contiguous(),
                         ids.narrow(1, 1, kTinyShape.context).contiguous(),
                         {},
                         0},
          .samples = {0, 1}};
}

// Estimates and reports are about steps.
TEST(Pipeline, TimesAreWithoutShadows) {
  const Gpt gpt = make_tiny_gpt(at::kFloat);
  Pipeline pipeline(gpt, plan_for_one(gpt.shape, 2), nullptr, {0}, 0);
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
