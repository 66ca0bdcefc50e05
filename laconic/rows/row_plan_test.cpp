// T6 (its formulas) and T7 of the specification of EmbRace, and what sums rely on.
#include "laconic/rows/row_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace laconic {
namespace {

RowIds random_rows(std::mt19937& draw, std::int64_t most, int count) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int64_t>(draw() % static_cast<unsigned>(most)));
  return unique_rows(ids);
}

TEST(RowPlan, ColumnsTileARowInOrderAndDifferByOneAtMost) {
  for (std::int64_t width = 1; width <= 40; ++width)
    for (int members = 1; members <= 17; ++members) {
      std::int64_t end = 0, least = width, most = 0;
      for (int m = 0; m < members; ++m) {
        const Range columns = table_columns(width, members, m);
        EXPECT_EQ(columns.begin, end);
        EXPECT_EQ(columns.begin, width * m / members);
        end = columns.end;
        least = std::min(least, columns.size());
        most = std::max(most, columns.size());
      }
      EXPECT_EQ(end, width);
      EXPECT_LE(most - least, 1);
    }
}

TEST(RowPlan, UniqueRowsAscendAndAreThoseOfTheIds) {
  std::mt19937 draw(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> ids;
    for (unsigned i = draw() % 50; i > 0; --i)
      ids.push_back(static_cast<std::int64_t>(draw() % 30));
    const RowIds rows = unique_rows(ids);
    const std::set<std::int64_t> expected(ids.begin(), ids.end());
    EXPECT_EQ(rows, RowIds(expected.begin(), expected.end()));
    const std::vector<std::int64_t> places =
        places_in(union_of(std::vector{rows, RowIds{3}}), rows);
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(union_of(std::vector{rows, RowIds{3}})[static_cast<std::size_t>(places[i])],
                rows[i]);
  }
}

// T7: prior and delayed rows are all rows, none is both, and the prior ones are those of the next
// step. All subsets of 5 rows on both sides, the empty ones included.
TEST(RowPlan, PriorAndDelayedRowsArePartsByWhatTheNextStepReads) {
  const auto subset = [](unsigned bits) {
    RowIds rows;
    for (std::int64_t row = 0; row < 5; ++row)
      if ((bits >> row & 1U) != 0) rows.push_back(10 * row);
    return rows;
  };
  for (unsigned now = 0; now < 32; ++now)
    for (unsigned next = 0; next < 32; ++next) {
      const RowIds rows = subset(now);
      const RowSplit split = split_rows(rows, subset(next));
      EXPECT_EQ(rows_at(rows, split.prior), subset(now & next));
      EXPECT_EQ(rows_at(rows, split.delayed), subset(now & ~next));
      EXPECT_TRUE(std::ranges::is_sorted(split.prior));
    }
}

// A row is prior on all ranks or on none, which a rank's own ids cannot tell.
TEST(RowPlan, SplitByTheIdsOfAllRanksNoRowIsBoth) {
  std::mt19937 draw(2);
  for (int round = 0; round < 200; ++round) {
    const int members = 1 + static_cast<int>(draw() % 5);
    std::vector<RowIds> now, next;
    for (int m = 0; m < members; ++m) {
      now.push_back(random_rows(draw, 40, static_cast<int>(draw() % 30)));
      next.push_back(random_rows(draw, 40, static_cast<int>(draw() % 30)));
    }
    const RowIds all_next = union_of(next);
    std::set<std::int64_t> prior, delayed;
    for (const RowIds& rows : now) {
      const RowSplit split = split_rows(rows, all_next);
      for (const std::int64_t row : rows_at(rows, split.prior)) prior.insert(row);
      for (const std::int64_t row : rows_at(rows, split.delayed)) delayed.insert(row);
    }
    for (const std::int64_t row : prior) EXPECT_FALSE(delayed.contains(row));
    for (const RowIds& rows : next)
      for (const std::int64_t row : rows) EXPECT_FALSE(delayed.contains(row));
  }
}

TEST(RowPlan, BytesOfAllMembersAreTheShareThatLeaves) {
  std::mt19937 draw(3);
  for (const int members : {1, 2, 4, 5, 7, 16}) {
    std::vector<std::uint64_t> rows;
    std::uint64_t all = 0;
    for (int m = 0; m < members; ++m) {
      rows.push_back(draw() % 100);
      all += rows.back();
    }
    const std::int64_t width = 3 * members;
    RowBytes sum;
    for (int m = 0; m < members; ++m) {
      const RowBytes sent = bytes_sent(rows, width, 4, m);
      sum.forward += sent.forward;
      sum.backward += sent.backward;
    }
    const auto n = static_cast<std::uint64_t>(members);
    EXPECT_EQ(sum.forward, (n - 1) * 4 * 3 * all);
    EXPECT_EQ(sum.backward, sum.forward);
  }
}

// What a member sends is what the others expect of it, for any width.
TEST(RowPlan, UnevenColumnsSendWhatIsReceived) {
  const std::vector<std::uint64_t> rows = {5, 0, 7, 1, 1, 3, 2};
  std::uint64_t forward = 0, received = 0, backward = 0, summed = 0;
  for (int m = 0; m < 7; ++m) {
    const RowBytes sent = bytes_sent(rows, 10, 8, m);
    forward += sent.forward;
    backward += sent.backward;
    const auto mine = static_cast<std::uint64_t>(table_columns(10, 7, m).size());
    const std::uint64_t own = rows[static_cast<std::size_t>(m)];
    received += own * (10 - mine) * 8;
    summed += (19 - own) * mine * 8;
  }
  EXPECT_EQ(forward, received);
  EXPECT_EQ(backward, summed);
}

}  // namespace
}  // namespace laconic
