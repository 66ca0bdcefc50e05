#include "laconic/checkpoint/validation_state.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace laconic {
namespace {

TEST(ValidationState, KnowsTheBestAndCountsWhatDidNotImprove) {
  ValidationState state;
  EXPECT_TRUE(observe(state, 3.0, 10, 0));
  EXPECT_FALSE(observe(state, 3.0, 20, 0)) << "equal is not better";
  EXPECT_EQ(state.stale, 1);
  EXPECT_TRUE(observe(state, 2.5, 30, 0));
  EXPECT_EQ(state.stale, 0);
  EXPECT_FALSE(observe(state, 2.7, 40, 0));
  EXPECT_FALSE(observe(state, 2.6, 50, 0)) << "better than the last, but not than the best";
  EXPECT_EQ(state.stale, 2);
  EXPECT_EQ(state.best_loss, 2.5);
  EXPECT_EQ(state.best_step, 30);
  EXPECT_FALSE(is_exhausted(state, 3));
  EXPECT_TRUE(is_exhausted(state, 2));
  EXPECT_FALSE(is_exhausted(state, 0)) << "0 is never";
}

// Small gains are the best, and yet no improvement; many of them together are.
TEST(ValidationState, SmallGainsAddUp) {
  ValidationState state;
  observe(state, 3.0, 1, 0.25);
  EXPECT_TRUE(observe(state, 2.875, 2, 0.25));
  EXPECT_TRUE(observe(state, 2.75, 3, 0.25)) << "exactly the least improvement is none";
  EXPECT_EQ(state.stale, 2);
  EXPECT_TRUE(observe(state, 2.625, 4, 0.25));
  EXPECT_EQ(state.stale, 0);
  EXPECT_EQ(state.reference, 2.625);
}

TEST(ValidationState, ALossThatIsNotFiniteIsNeverBetter) {
  ValidationState state;
  EXPECT_FALSE(observe(state, std::numeric_limits<double>::quiet_NaN(), 1, 0));
  EXPECT_FALSE(observe(state, std::numeric_limits<double>::infinity(), 2, 0));
  EXPECT_FALSE(observe(state, -std::numeric_limits<double>::infinity(), 3, 0));
  EXPECT_EQ(state.stale, 3);
  EXPECT_FALSE(state.best_loss);
  EXPECT_TRUE(observe(state, 5, 4, 0));
}

}  // namespace
}  // namespace laconic
