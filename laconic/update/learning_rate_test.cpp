#include "laconic/update/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace laconic {
namespace {

OptimiserSection with(LearningRateShape schedule, StepsOrShare warmup) {
  OptimiserSection o;
  o.lr = 1.0;
  o.min_lr = 0.1;
  o.schedule = schedule;
  o.warmup = warmup;
  return o;
}

TEST(LearningRate, WarmsUpLinearlyToItsPeak) {
  for (LearningRateShape schedule :
       {LearningRateShape::cosine, LearningRateShape::linear, LearningRateShape::constant}) {
    const OptimiserSection o = with(schedule, 4);
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 0), 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 3), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 4), 1.0);
  }
}

TEST(LearningRate, WarmsUpForAShareOfItsScheduleWhateverThatIs) {
  for (const std::int64_t steps : {10, 100, 1000})
    for (std::int64_t s = 0; s < steps; ++s)
      EXPECT_EQ(learning_rate(with(LearningRateShape::cosine, 0.2), steps, s),
                learning_rate(with(LearningRateShape::cosine, steps / 5), steps, s));
  OptimiserSection o = with(LearningRateShape::linear, 0.25);
  o.decay_steps = 40;
  EXPECT_DOUBLE_EQ(learning_rate(o, 1000, 4), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1000, 9), 1.0);
}

TEST(LearningRate, AWarmUpThatDoesNotFitFillsTheSchedule) {
  for (const std::int64_t warmup : {20, 21, 60})
    for (std::int64_t s = 0; s < 20; ++s)
      EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateShape::cosine, warmup), 20, s),
                       static_cast<double>(s + 1) / 20);
}

TEST(LearningRate, ReachesItsEndAtTheLastStepAndStaysThere) {
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateShape::cosine, 0), 11, 5), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateShape::linear, 0), 11, 5), 0.55);
  EXPECT_NEAR(learning_rate(with(LearningRateShape::linear, 0), 11, 1), 0.91, 1e-15);
  for (LearningRateShape schedule : {LearningRateShape::cosine, LearningRateShape::linear}) {
    EXPECT_NEAR(learning_rate(with(schedule, 3), 11, 10), 0.1, 1e-15);
    EXPECT_NEAR(learning_rate(with(schedule, 3), 11, 50), 0.1, 1e-15);
  }
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateShape::constant, 0), 11, 50), 1.0);
}

TEST(LearningRate, FollowsItsOwnLengthWhenItHasOne) {
  OptimiserSection o = with(LearningRateShape::linear, 0);
  o.decay_steps = 21;
  EXPECT_DOUBLE_EQ(learning_rate(o, 1000, 10), 0.55);
}

// Warm-up, stable, decay.
TEST(LearningRate, WsdStaysAtItsPeakAndFallsInTheLastSteps) {
  OptimiserSection o = with(LearningRateShape::wsd, 4);
  o.decay_length = 10;
  const auto at = [&](std::int64_t step) { return learning_rate(o, 100, step); };
  EXPECT_DOUBLE_EQ(at(0), 0.25);
  for (std::int64_t step = 3; step < 90; ++step) EXPECT_EQ(at(step), 1.0) << step;
  // Ten steps of decay, 90 to 99: each takes a tenth.
  for (std::int64_t step = 90; step < 100; ++step)
    EXPECT_NEAR(at(step), 1 - 0.09 * static_cast<double>(step - 89), 1e-12) << step;
  EXPECT_NEAR(at(500), 0.1, 1e-15);
  o.decay_length = 0.1;  // the same as a share
  EXPECT_NEAR(at(94), 0.55, 1e-12);
  EXPECT_EQ(at(89), 1.0);
  o.decay = DecayShape::cosine;
  EXPECT_NEAR(at(94), 0.55, 1e-12);
  EXPECT_NEAR(at(90), 0.1 + 0.9 * 0.5 * (1 + std::cos(0.1 * 3.141592653589793)), 1e-12);
  o.decay = DecayShape::one_minus_sqrt;
  EXPECT_NEAR(at(94), 0.1 + 0.9 * (1 - std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(at(99), 0.1, 1e-12);
  o.decay_steps = 50;
  EXPECT_EQ(at(44), 1.0);
  EXPECT_NEAR(at(49), 0.1, 1e-12);
}

TEST(LearningRate, AWsdDecayThatMeetsWarmUpBeginsBehindIt) {
  OptimiserSection o = with(LearningRateShape::wsd, 6);
  o.decay_length = 8;
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 5), 1.0);
  EXPECT_NEAR(learning_rate(o, 10, 6), 1 - 0.9 / 4, 1e-12);
  EXPECT_NEAR(learning_rate(o, 10, 9), 0.1, 1e-12);
}

TEST(LearningRate, NeverRisesAfterWarmUpAndIsDefinedForTheShortestRuns) {
  for (LearningRateShape schedule :
       {LearningRateShape::cosine, LearningRateShape::linear, LearningRateShape::wsd}) {
    for (std::int64_t steps = 1; steps < 30; ++steps) {
      const OptimiserSection o = with(schedule, std::min<std::int64_t>(steps, 3));
      for (std::int64_t s = o.warmup.steps + 1; s < steps; ++s)
        EXPECT_LE(learning_rate(o, steps, s), learning_rate(o, steps, s - 1));
      EXPECT_GT(learning_rate(o, steps, steps - 1), 0);
    }
  }
}

}  // namespace
}  // namespace laconic
