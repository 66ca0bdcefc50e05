#include "laconic/study/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace laconic {
namespace {

TEST(Statistics, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median_of({3}), 3);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(mean_of({1, 2, 6}), 3);
}

TEST(Statistics, NumbersHaveDigitsOrFigures) {
  EXPECT_EQ(number_text(1.25, 1), "1.2");
  EXPECT_EQ(number_text(std::nan(""), 1), "–");
  for (const auto& [value, digits] : {std::pair(0.0123, 4),
                                      {0.123, 3},
                                      {1.23, 2},
                                      {-12.3, 1},
                                      {123.0, 0},
                                      {12345.0, 0},
                                      {0.0, 0}})
    EXPECT_EQ(digits_for(value, 3), digits) << value;
}

}  // namespace
}  // namespace laconic
