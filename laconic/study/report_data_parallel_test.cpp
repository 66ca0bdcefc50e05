// The page "data-parallel": losses over time.
#include <gtest/gtest.h>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;
using testing::invented_peer;

TEST(StudyPages, LossesAreComposedWithStepTimes) {
  const auto losses_of = [](const std::string& method, double slope) {
    Outcome outcome = invented({.part = "loss", .method = method, .rate = "unshaped", .steps = 9});
    for (StepRow& row : outcome.steps) row.loss = 10 - slope * static_cast<double>(row.step);
    return outcome;
  };
  const Outcomes outcomes = {
      losses_of("DDP", 0.1), losses_of("laconic, 4 bits", 0.1),
      invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 4}),
      invented(
          {.part = "data-parallel", .method = "laconic, 4 bits", .seconds = 2, .pp = 1, .dp = 4})};
  const std::vector<ComposedLoss> composed = composed_losses(outcomes, "100mbit");
  ASSERT_EQ(composed.size(), 2u);
  // Ten steps of the faster but two; after so long that has done eight, the slower four.
  EXPECT_DOUBLE_EQ(common_seconds(composed), 16);
  EXPECT_DOUBLE_EQ(loss_after(composed[0], 16).median, 10 - 0.1 * 4);
  EXPECT_DOUBLE_EQ(loss_after(composed[1], 16).median, 10 - 0.1 * 8);
  EXPECT_FALSE(is_known(loss_after(composed[0], 3)));
  EXPECT_NEAR(*loss_excess_percent(outcomes, "laconic, 4 bits"), 0, 1e-12);
  EXPECT_FALSE(loss_excess_percent(outcomes, "laconic, raw"));
  const std::string page = data_parallel_page(outcomes, {});
  EXPECT_TRUE(contains(page, "### 100mbit, after 16.0 s")) << page;
  EXPECT_TRUE(contains(page,
                       "| DDP | 4 | 9.6000 (n 1) |\n| laconic, 4 bits | 8 | 9.2000 "
                       "(n 1) |"))
      << page;
  EXPECT_TRUE(composed_losses(outcomes, "1gbit").empty());
}

// Both follow the same line. A mean of the losses before would lag by two steps on it, but after
// two steps only by half a one.
TEST(StudyPages, FewStepsAreNotHeldAgainstAMethod) {
  const auto composed = [](double seconds) {
    Outcome losses = invented({.part = "loss", .steps = 19});
    for (StepRow& row : losses.steps) row.loss = 10 - 0.25 * static_cast<double>(row.step);
    return ComposedLoss{"any", {seconds, seconds, seconds, 1}, losses};
  };
  for (const std::size_t steps : {1, 2, 3, 4, 10, 18}) {
    const ComposedLoss one = composed(18.0 / static_cast<double>(steps));
    EXPECT_EQ(steps_after(one, 18), steps);
    EXPECT_DOUBLE_EQ(loss_after(one, 18).median, 10 - 0.25 * static_cast<double>(steps));
  }
  EXPECT_DOUBLE_EQ(common_seconds({composed(2), composed(1)}), 18);
  ComposedLoss brief = composed(1);
  brief.losses.steps.resize(2);
  EXPECT_DOUBLE_EQ(common_seconds({brief}), 2);
}

// Ten steps whole, of 4 s as raw's, then steps of 1 s.
TEST(StudyPages, StepsBeforeAMethodBeginsTakeAsLongAsThoseOfWhatIsSentWhole) {
  const std::string adam = "laconic, compressed Adam, sign", hook = "DDP, PowerSGD hook rank 32";
  Outcome losses = invented({.part = "loss", .method = adam, .rate = "unshaped", .steps = 19});
  losses.trial.set["dp.gradient.method"] = "compressed_adam";
  losses.trial.set["dp.gradient.warmup"] = "10";
  Outcome peers = invented_peer({.part = "loss", .method = hook, .rate = "unshaped", .steps = 19});
  peers.trial.set["hook"] = "powersgd";
  Outcomes outcomes = {losses,
                       peers,
                       invented({.part = "data-parallel", .method = adam, .seconds = 1}),
                       invented_peer({.part = "data-parallel", .method = hook, .seconds = 2}),
                       invented({.part = "data-parallel", .method = "laconic, raw", .seconds = 4}),
                       invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 5})};
  const std::vector<ComposedLoss> composed = composed_losses(outcomes, "100mbit");
  ASSERT_EQ(composed.size(), 2u);
  EXPECT_DOUBLE_EQ(common_seconds(composed), 2 * 5 + 16 * 2);  // of 48 and 42
  EXPECT_EQ(steps_after(composed[0], 8), 2u);
  EXPECT_EQ(steps_after(composed[0], 39.9), 9u);
  EXPECT_EQ(steps_after(composed[0], 45), 15u);
  EXPECT_EQ(steps_after(composed[1], 10), 2u);
  EXPECT_EQ(steps_after(composed[1], 14), 4u);
  EXPECT_EQ(loss_figure(outcomes).curves[0].points[10].x, 41);
  outcomes.resize(4);  // nothing to place the first steps at
  EXPECT_TRUE(composed_losses(outcomes, "100mbit").empty());
}

}  // namespace
}  // namespace laconic
