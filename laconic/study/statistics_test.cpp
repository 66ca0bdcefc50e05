#include "laconic/study/statistics.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace laconic {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Statistics, TheMedianIsInTheMiddle) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median_of({7}), 7);
  EXPECT_THROW(median_of({}), std::logic_error);
}

TEST(Statistics, ASpreadKnowsItsRounds) {
  EXPECT_EQ(spread_of({3, 1, 2}), (Spread{2, 1, 3, 3}));
  EXPECT_EQ(spread_of({kNan, 5, kInfinity}), (Spread{5, 5, 5, 1}));
  EXPECT_FALSE(is_known(spread_of({})));
  EXPECT_FALSE(is_known(spread_of({kNan})));
}

TEST(Statistics, ARatioHoldsTheWorstAndTheBest) {
  EXPECT_EQ(ratio_of({8, 6, 10, 3}, {2, 1, 4, 2}), (Spread{4, 1.5, 10, 2}));
  EXPECT_FALSE(is_known(ratio_of({8, 6, 10, 3}, {})));
  EXPECT_FALSE(is_known(ratio_of({}, {2, 1, 4, 2})));
  EXPECT_FALSE(is_known(ratio_of({8, 6, 10, 3}, {2, 0, 4, 2})));
}

TEST(Statistics, ScalingByLessThanNothingTurnsTheSpreadRound) {
  EXPECT_EQ(scaled({2, 1, 3, 3}, 10), (Spread{20, 10, 30, 3}));
  EXPECT_EQ(scaled({2, 1, 3, 3}, -1), (Spread{-2, -3, -1, 3}));
}

TEST(Statistics, SpreadsOverlapWhenRoundsLieAmongEachOther) {
  const Spread low = {2, 1, 3, 3};
  EXPECT_TRUE(overlap(low, {4, 3, 5, 2}));
  EXPECT_FALSE(overlap(low, {4, 3.1, 5, 2}));
  EXPECT_FALSE(overlap({4, 3.1, 5, 2}, low));
  EXPECT_FALSE(overlap(low, {}));
}

TEST(Statistics, TextsCarryMedianSpreadAndRounds) {
  EXPECT_EQ(text(Spread{2, 1, 3, 3}, 1), "2.0 (1.0–3.0, n 3)");
  EXPECT_EQ(text(Spread{2, 1, 3, 3}, 2, "x"), "2.00x (1.00–3.00, n 3)");
  EXPECT_EQ(text(Spread{2, 2, 2, 1, 1.5, 3}, 1), "2.0 (steps 1.5–3.0, n 1)");
  EXPECT_EQ(text(scaled(Spread{2, 2, 2, 1, 1.5, 3}, 10), 0), "20 (steps 15–30, n 1)");
  EXPECT_EQ(text(ratio_of({2, 2, 2, 1, 1, 3}, {1, 1, 1, 1, 1, 2}), 1), "2.0 (n 1)");
  EXPECT_EQ(text(Spread{2, 2, 2, 1}, 1), "2.0 (n 1)");
  EXPECT_EQ(text(Spread{}, 2), "–");
  EXPECT_EQ(number_text(kNan, 2), "–");
  EXPECT_EQ(number_text(kInfinity, 2), "–");
}

TEST(Statistics, DigitsFollowTheSize) {
  struct Row {
    double value;
    std::string text;
  };
  for (const Row& row : {Row{1234.4, "1234"}, Row{12.34, "12.3"}, Row{1.234, "1.23"},
                         Row{0.1234, "0.123"}, Row{0.0012345, "0.00123"}, Row{0, "0"}}) {
    EXPECT_EQ(number_text(row.value, digits_for(row.value)), row.text);
  }
}

}  // namespace
}  // namespace laconic
