// T6 (its formulas) and T7 of the specification of EmbRace, and what sums rely on.
#include "laconic/rows/row_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "laconic/rows/row_memory.hpp"

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

// Rows that lie near each other, far apart, and so far that nobody may mark them.
TEST(RowPlan, AUnionHasEveryRowOnceHoweverFarApart) {
  std::mt19937_64 draw(3);
  for (const std::uint64_t most : {1UL, 64UL, 65UL, 3000UL, 1UL << 20, 1UL << 62})
    for (const int lists : {0, 1, 2, 3, 7}) {
      std::vector<RowIds> all;
      std::set<std::int64_t> expected;
      for (int list = 0; list < lists; ++list) {
        std::vector<std::int64_t> ids;
        for (std::uint64_t i = draw() % 40; i > 0; --i)
          ids.push_back(static_cast<std::int64_t>(draw() % most));
        expected.insert(ids.begin(), ids.end());
        all.push_back(unique_rows(ids));
      }
      EXPECT_EQ(union_of(all), RowIds(expected.begin(), expected.end())) << most << " " << lists;
    }
  EXPECT_THROW(union_of(std::vector<RowIds>{{5, 900, 3}, {4}}), std::logic_error);
}

// Bit for bit zeros to which the members' rows are added one after the other; so -0 alone becomes
// 0. Widths around the pieces that are added at once.
TEST(RowMemory, SumsAreInTheOrderOfMembers) {
  std::mt19937 draw(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const std::int64_t width : {0, 1, 15, 16, 17, 70}) {
    std::vector<RowIds> lists;
    std::vector<std::vector<float>> rows;
    std::vector<const float*> from;
    for (const int count : {9, 0, 20, 3}) {
      lists.push_back(random_rows(draw, 25, count));
      rows.emplace_back(lists.back().size() * static_cast<std::size_t>(width));
      for (float& x : rows.back()) x = draw() % 8 == 0 ? -0.0F : uniform(draw);
    }
    for (const auto& of_member : rows) from.push_back(of_member.data());
    const RowIds all = union_of(lists);
    std::vector<float> sums(all.size() * static_cast<std::size_t>(width), 7.0F);
    sum_rows<float>(lists, from, all, width, sums.data());
    std::vector<float> expected(sums.size(), 0.0F);
    for (std::size_t m = 0; m < lists.size(); ++m)
      for (std::size_t i = 0; i < rows[m].size(); ++i) {
        const std::size_t c = i % static_cast<std::size_t>(width);
        const auto place = std::ranges::find(all, lists[m][i / static_cast<std::size_t>(width)]);
        expected[static_cast<std::size_t>((place - all.begin()) * width) + c] += rows[m][i];
      }
    ASSERT_EQ(sums.size(), expected.size());
    const std::size_t bytes = sums.size() * sizeof(float);
    EXPECT_TRUE(bytes == 0 || std::memcmp(sums.data(), expected.data(), bytes) == 0) << width;
  }
}

TEST(RowMemory, ARowThatNobodyHasIsNoSum) {
  const std::vector<RowIds> lists = {{1}, {4}};
  const float x = 1;
  const std::vector<const float*> from = {&x, &x};
  float sums[3];
  EXPECT_THROW(sum_rows<float>(lists, from, {1, 2, 4}, 1, sums), std::logic_error);
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

// Every row of every list has one owner, or one for each part of its columns, or everybody.
TEST(RowPlan, SharesOfMembersAreTheWholeTable) {
  std::mt19937 draw(4);
  for (const int members : {1, 2, 3, 7})
    for (const ReplicaCut cut : {ReplicaCut::whole, ReplicaCut::columns, ReplicaCut::rows}) {
      const TableShares shares{cut, members, 10};
      const RowIds rows = random_rows(draw, 40, 25);
      std::uint64_t elements = 0;
      std::set<std::int64_t> seen;
      for (int m = 0; m < members; ++m) {
        const RowIds held = shares.held(rows, m);
        EXPECT_EQ(held, rows_at(rows, shares.held_places(rows, m)));
        EXPECT_EQ(shares.held_elements(rows, m),
                  held.size() * static_cast<std::uint64_t>(shares.columns(m).size()));
        elements += shares.held_elements(rows, m);
        for (const std::int64_t row : shares.stored(held))
          EXPECT_LT(row, cut == ReplicaCut::rows ? dealt_rows(40, members, m) : 40);
        seen.insert(held.begin(), held.end());
      }
      EXPECT_EQ(seen.size(), rows.size());
      const auto copies = static_cast<std::uint64_t>(cut == ReplicaCut::whole ? members : 1);
      EXPECT_EQ(elements, copies * rows.size() * 10);
    }
  EXPECT_EQ(dealt_rows(7, 3, 0), 3);
  EXPECT_EQ(dealt_rows(7, 3, 1), 2);
  EXPECT_EQ(dealt_rows(1, 3, 2), 0);
}

// At servers that are ranks themselves what leaves is what lies elsewhere.
TEST(RowPlan, DealtRowsThatAreAtHomeDoNotTravel) {
  const std::vector<RowIds> rows = {{0, 1, 2}, {}, {2, 5, 8, 9}};
  const TableShares shares{ReplicaCut::rows, 3, 6};
  // Rank 0 has rows 0, 3, 6, 9; rank 2 has 2, 5, 8.
  EXPECT_EQ(bytes_sent(shares, rows, 4, 0), (RowBytes{1 * 24, 2 * 24}));
  EXPECT_EQ(bytes_sent(shares, rows, 4, 1), (RowBytes{1 * 24, 0}));
  EXPECT_EQ(bytes_sent(shares, rows, 4, 2), (RowBytes{1 * 24, 1 * 24}));
  EXPECT_EQ(bytes_sent({ReplicaCut::whole, 3, 6}, rows, 4, 2), (RowBytes{0, 2 * 4 * 24}));
}

TEST(RowPlan, BytesOfAllMembersAreTheShareThatLeaves) {
  std::mt19937 draw(3);
  for (const int members : {1, 2, 4, 5, 7, 16}) {
    std::vector<RowIds> rows;
    std::uint64_t all = 0;
    for (int m = 0; m < members; ++m) {
      rows.push_back(random_rows(draw, 1000, static_cast<int>(draw() % 100)));
      all += rows.back().size();
    }
    const TableShares shares{ReplicaCut::columns, members, 3 * members};
    RowBytes sum;
    for (int m = 0; m < members; ++m) {
      const RowBytes sent = bytes_sent(shares, rows, 4, m);
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
  const std::vector<std::uint64_t> counts = {5, 0, 7, 1, 1, 3, 2};
  std::vector<RowIds> rows;
  for (const std::uint64_t count : counts) rows.emplace_back(count, 1);
  std::uint64_t forward = 0, received = 0, backward = 0, summed = 0;
  for (int m = 0; m < 7; ++m) {
    const RowBytes sent = bytes_sent({ReplicaCut::columns, 7, 10}, rows, 8, m);
    forward += sent.forward;
    backward += sent.backward;
    const auto mine = static_cast<std::uint64_t>(table_columns(10, 7, m).size());
    const std::uint64_t own = counts[static_cast<std::size_t>(m)];
    received += own * (10 - mine) * 8;
    summed += (19 - own) * mine * 8;
  }
  EXPECT_EQ(forward, received);
  EXPECT_EQ(backward, summed);
}

}  // namespace
}  // namespace laconic
