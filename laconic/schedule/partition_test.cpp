#include "laconic/schedule/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "laconic/base/error.hpp"
#include "laconic/schedule/test_schedule.hpp"

namespace laconic {
namespace {

using Lengths = std::vector<std::int64_t>;

Lengths lengths(const std::vector<BlockRange>& ranges) {
  Lengths result;
  for (const BlockRange& range : ranges) result.push_back(range.end - range.begin);
  return result;
}

// All ways to write `blocks` as a sum of `stages` positive numbers.
std::vector<Lengths> all_splits(std::int64_t blocks, int stages) {
  if (stages == 1) return {{blocks}};
  std::vector<Lengths> result;
  for (std::int64_t first = 1; first <= blocks - stages + 1; ++first)
    for (Lengths rest : all_splits(blocks - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      result.push_back(std::move(rest));
    }
  return result;
}

Lengths best_by_trying(const std::vector<double>& costs, int stages) {
  std::optional<std::tuple<double, double, Lengths>> best;
  for (const Lengths& split : all_splits(static_cast<std::int64_t>(costs.size()), stages)) {
    double largest = 0, squares = 0;
    Lengths negated;  // the longest first stage is the smallest
    auto at = costs.begin();
    for (const std::int64_t length : split) {
      double sum = 0;
      for (std::int64_t i = 0; i < length; ++i) sum += *at++;
      largest = std::max(largest, sum);
      squares += sum * sum;
      negated.push_back(-length);
    }
    const std::tuple value{largest, squares, negated};
    if (!best || value < *best) best = value;
  }
  Lengths result;
  for (const std::int64_t length : std::get<2>(*best)) result.push_back(-length);
  return result;
}

TEST(Partition, IsTheBestOfAllSplitsOfSmallModels) {
  for (int blocks = 1; blocks <= 6; ++blocks) {
    int cases = 1;
    for (int i = 0; i < blocks; ++i) cases *= 4;
    for (int c = 0; c < cases; ++c) {  // every block costs 0 ... 3
      std::vector<double> costs;
      for (int i = 0, digits = c; i < blocks; ++i, digits /= 4) costs.push_back(digits % 4);
      for (int stages = 1; stages <= blocks; ++stages)
        ASSERT_EQ(lengths(partition(costs, stages)), best_by_trying(costs, stages))
            << "case " << c << " of " << blocks << " blocks in " << stages << " stages";
    }
  }
}

TEST(Partition, IsTheBestOfAllSplitsOfUnevenModels) {
  unsigned state = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs;
    for (int i = 0; i < 11; ++i) costs.push_back((state = state * 1664525u + 1013904223u) >> 22);
    for (int stages = 1; stages <= 6; ++stages)
      ASSERT_EQ(lengths(partition(costs, stages)), best_by_trying(costs, stages)) << round;
  }
}

TEST(Partition, RangesFollowEachOther) {
  EXPECT_EQ(partition({1, 1, 1, 1, 1}, 2), (std::vector<BlockRange>{{0, 3}, {3, 5}}));
  EXPECT_EQ(partition({5}, 1), (std::vector<BlockRange>{{0, 1}}));
}

TEST(Partition, TiesGoToEarlyStagesForCostsThatRoundAsWell) {
  for (const double cost : {0.1, 1.0 / 3, 1e-300, 1e300, 123456789.123})
    EXPECT_EQ(lengths(partition(std::vector<double>(7, cost), 4)), (Lengths{2, 2, 2, 1})) << cost;
  EXPECT_EQ(lengths(partition({0, 0, 0, 0}, 2)), (Lengths{3, 1}));
}

TEST(Partition, RefusesWhatIsNoCost) {
  for (const double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(partition({1, bad}, 1), std::exception) << bad;
  EXPECT_THROW(partition({1}, 2), std::exception);
  EXPECT_THROW(partition({1}, 0), std::exception);
}

TEST(Partition, GivesTheHeadOfASmallModelAStageWithFewLayers) {
  // GPT-2: the head costs as much as 5 of 12 layers.
  std::vector<double> costs(14, 12.0 * 768 * 768 + 768 * 1024);
  costs.front() = 0;
  costs.back() = 768.0 * 50257;
  EXPECT_EQ(lengths(partition(costs, 4)), (Lengths{5, 4, 4, 1}));
}

TEST(Partition, SplitsAreListsOfLayers) {
  EXPECT_EQ(parse_split("2,3,3,2"), (Lengths{2, 3, 3, 2}));
  EXPECT_EQ(parse_split(" 0, 12 "), (Lengths{0, 12}));
  for (const char* text : {"", "2,,3", "2;3", "-1,2", "2,3,", "1.5", "99999999999999999999", "a"})
    EXPECT_THROW(parse_split(text), ConfigError) << text;
  try {
    parse_split("2,x,3");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "'x' in the split '2,x,3' is no number of layers; expected is a list like 2,3,3,2");
  }
}

TEST(Partition, SplitsAreCheckedAgainstTheModel) {
  struct Case {
    Lengths split;
    std::int64_t layers;
    int stages;
    std::string text;
  };
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const Case cases[] = {
      {{2, 3, 3, 2}, 10, 4, ""},
      {{0, 10, 0}, 10, 3, ""},
      {{10}, 10, 1, ""},
      {{2, 3}, 5, 3, "split: 2 numbers for 3 stages\n"},
      {{2, 3}, 6, 2, "split: 2 + 3 is no split of 6 layers\n"},
      {{2, 0, 0, 3},
       6,
       4,
       "split: stage 1 has no layer; only the first and the last of 4 may have none\n"
       "split: stage 2 has no layer; only the first and the last of 4 may have none\n"
       "split: 2 + 0 + 0 + 3 is no split of 6 layers\n"},
      {{-1, 6}, 6, 2, "split: stage 0 has -1 layers\n"},
      {{huge, huge, 2},
       0,
       3,
       "split: 9223372036854775807 + 9223372036854775807 + 2 is no split of 0 layers\n"},
  };
  for (const Case& c : cases) EXPECT_EQ(lines(check_split(c.split, c.layers, c.stages)), c.text);
}

TEST(Partition, TheEmbeddingComesWithTheFirstStageAndTheHeadWithTheLast) {
  EXPECT_EQ(ranges_of_split({2, 3, 1}), (std::vector<BlockRange>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(ranges_of_split({0, 4, 0}), (std::vector<BlockRange>{{0, 1}, {1, 5}, {5, 6}}));
  EXPECT_EQ(ranges_of_split({4}), (std::vector<BlockRange>{{0, 6}}));
}

}  // namespace
}  // namespace laconic
