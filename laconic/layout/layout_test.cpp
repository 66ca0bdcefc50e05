// Tilings and round trips, of all small meshes.
#include "laconic/layout/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace laconic {
namespace {

constexpr Axis i = Axis::tp0, j = Axis::tp1, l = Axis::tp2;

std::vector<Mesh> small_meshes() {
  std::vector<Mesh> meshes;
  for (const int a : {1, 2, 3})
    for (const int b : {1, 2, 4})
      for (const int c : {1, 2, 3})
        for (const std::array<int, 3>& order :
             {std::array{0, 1, 2}, std::array{2, 0, 1}, std::array{1, 2, 0}})
          meshes.push_back({.pp = 2, .dp = 2, .tp = {a, b, c}, .order = order});
  return meshes;
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = {{}, {{{}, {}}}};
  Axes axes = {i, j, l};
  std::ranges::sort(axes);
  do {
    layouts.push_back({{{axes[0]}, {axes[1]}}});
    layouts.push_back({{{axes[0], axes[1]}, {axes[2]}}});
    layouts.push_back({{{axes[0]}, {axes[1], axes[2]}}});
    layouts.push_back({{{axes[0], axes[1], axes[2]}, {}}});
    layouts.push_back({{{}, {axes[0], axes[1], axes[2]}}});
  } while (std::next_permutation(axes.begin(), axes.end()));
  return layouts;
}

TEST(Layout, ShardsTileATensorOnceForEachReplica) {
  for (const Mesh& mesh : small_meshes())
    for (const Layout& layout : all_layouts())
      for (const std::vector<std::int64_t>& sizes :
           {std::vector<std::int64_t>{36, 36}, {5, 7}, {1, 1}, {0, 3}}) {
        SCOPED_TRACE(to_text(mesh) + " " + to_text(layout));
        std::vector<int> held(static_cast<std::size_t>(sizes[0] * sizes[1]), 0);
        for (Rank r = 0; r < size(mesh); ++r) {
          const Coord coord = coord_of(mesh, r);
          if (coord.pp != 0 || coord.dp != 1 || !speaks_for(layout, mesh, coord)) continue;
          const std::vector<Range> shard = shard_of(layout, mesh, coord, sizes);
          for (std::int64_t y = shard[0].begin; y < shard[0].end; ++y)
            for (std::int64_t x = shard[1].begin; x < shard[1].end; ++x)
              ++held[static_cast<std::size_t>(y * sizes[1] + x)];
        }
        for (const int count : held) ASSERT_EQ(count, 1);
      }
}

TEST(Layout, RunsGoThroughAShardInOrder) {
  const std::vector<std::int64_t> sizes = {3, 4, 5};
  for (std::int64_t a = 0; a <= 3; ++a)
    for (std::int64_t b = a; b <= 3; ++b)
      for (std::int64_t c = 0; c <= 4; ++c)
        for (std::int64_t d = c; d <= 4; ++d)
          for (const Range last : {Range{0, 5}, Range{2, 4}, Range{1, 1}}) {
            const std::vector<Range> shard = {{a, b}, {c, d}, last};
            std::vector<std::int64_t> wanted, got;
            for (std::int64_t x = a; x < b; ++x)
              for (std::int64_t y = c; y < d; ++y)
                for (std::int64_t z = last.begin; z < last.end; ++z)
                  wanted.push_back((x * 4 + y) * 5 + z);
            for (const ShardRun& run : runs_of(shard, sizes)) {
              EXPECT_EQ(run.shard, static_cast<std::int64_t>(got.size()));
              for (std::int64_t e = 0; e < run.elements; ++e) got.push_back(run.whole + e);
            }
            ASSERT_EQ(got, wanted);
          }
  const std::vector<Range> all = {{0, 3}, {0, 4}, {0, 5}};
  EXPECT_EQ(runs_of(all, sizes), (std::vector<ShardRun>{{0, 0, 60}}));
}

TEST(Layout, ReplicasHoldTheSameAndAllOthersSomethingElse) {
  const std::vector<std::int64_t> sizes = {144, 144};  // divided by every grid
  for (const Mesh& mesh : small_meshes())
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(to_text(mesh) + " " + to_text(layout));
      const Rank rank = size(mesh) - 1;
      const Group replicas = replicas_of(layout, mesh, rank);
      const auto shard = [&](Rank r) { return shard_of(layout, mesh, coord_of(mesh, r), sizes); };
      for (Rank r = 0; r < size(mesh); ++r) {
        const bool is_replica = std::ranges::find(replicas, r) != replicas.end();
        const bool is_same =
            coord_of(mesh, r).pp == coord_of(mesh, rank).pp && shard(r) == shard(rank);
        ASSERT_EQ(is_replica, is_same) << r;
      }
    }
}

TEST(Layout, AnInnerAxisCutsWhatTheOuterLeft) {
  for (const Mesh& mesh : small_meshes())
    for (Rank r = 0; r < size(mesh); ++r) {
      const Coord coord = coord_of(mesh, r);
      const Axes outer = {j}, both = {j, l};
      for (const std::int64_t samples : {0, 1, 5, 24, 31}) {
        const Range wide = share_of(samples, extent(mesh, outer), index_along(mesh, coord, outer));
        const Range narrow = share_of(samples, extent(mesh, both), index_along(mesh, coord, both));
        EXPECT_LE(wide.begin, narrow.begin);
        EXPECT_GE(wide.end, narrow.end);
        const int last = extent(mesh, l) - 1;
        if (coord.tp[2] == 0) {
          EXPECT_EQ(wide.begin, narrow.begin);
        }
        if (coord.tp[2] == last) {
          EXPECT_EQ(wide.end, narrow.end);
        }
      }
    }
}

TEST(Layout, GroupsComeInTheOrderOfTheirParts) {
  for (const Mesh& mesh : small_meshes())
    for (const Axes& axes : {Axes{i}, Axes{l, i}, Axes{i, j}, Axes{j, i, l}}) {
      const Group group = group_along(mesh, 0, axes);
      ASSERT_EQ(static_cast<int>(group.size()), extent(mesh, axes));
      for (std::size_t m = 0; m < group.size(); ++m)
        EXPECT_EQ(index_along(mesh, coord_of(mesh, group[m]), axes), static_cast<int>(m));
      EXPECT_EQ(std::set<Rank>(group.begin(), group.end()).size(), group.size());
    }
}

TEST(Layout, WhatDoesNotDivideIsSaidWithItsNumbers) {
  const Mesh mesh{.tp = {2, 3, 2}};
  const std::vector<std::int64_t> sizes = {8, 8};
  const Problems problems = check({{{l, i}, {j}}}, mesh, sizes, "h.0.w");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].where, "h.0.w");
  EXPECT_EQ(problems[0].what, "dim 1 has 8 elements, which tp1 = 3 does not divide");
  EXPECT_EQ(check({{{i}, {i}}}, mesh, sizes, "w")[0].what, "tp0 cuts it twice");
  EXPECT_EQ(check({{{i}, {}, {j}}}, mesh, sizes, "w").size(), 1U);
  EXPECT_TRUE(check({{{l, i}, {}}}, mesh, sizes, "w").empty());
}

// Columns of tables on replicas: no rank has two more than another.
TEST(Layout, WhatReplicasCutIsCutEvenly) {
  for (const int dp : {1, 2, 3, 7}) {
    const Mesh mesh{.dp = dp};
    std::int64_t end = 0;
    for (Rank r = 0; r < dp; ++r) {
      const std::vector<Range> shard =
          shard_of({{{}, {Axis::dp}}}, mesh, coord_of(mesh, r), std::vector<std::int64_t>{5, 10});
      EXPECT_EQ(shard[0], (Range{0, 5}));
      EXPECT_EQ(shard[1].begin, end);
      EXPECT_EQ(shard[1].begin, 10 * r / dp);
      end = shard[1].end;
    }
    EXPECT_EQ(end, 10);
  }
}

}  // namespace
}  // namespace laconic
