#include "laconic/mesh/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

namespace laconic {
namespace {

// All meshes up to 4 x 3 x (2 x 2 x 2).
void for_each_mesh(const std::function<void(const Mesh&)>& body) {
  for (int pp = 1; pp <= 4; ++pp)
    for (int dp = 1; dp <= 3; ++dp)
      for (int tp = 0; tp < 8; ++tp) {
        const Mesh mesh{pp, dp, {1 + (tp & 1), 1 + (tp >> 1 & 1), 1 + (tp >> 2)}};
        SCOPED_TRACE(to_text(mesh));
        body(mesh);
      }
}

TEST(Mesh, SizeIsTheProductOfTheExtents) {
  for_each_mesh([](const Mesh& mesh) {
    int product = 1;
    for (const Axis axis : kAxes) product *= extent(mesh, axis);
    EXPECT_EQ(size(mesh), product);
    EXPECT_EQ(size(mesh), mesh.pp * mesh.dp * tp_size(mesh));
  });
}

TEST(Mesh, RankAndCoordAreInverse) {
  for_each_mesh([](const Mesh& mesh) {
    std::set<Coord> seen;
    for (Rank r = 0; r < size(mesh); ++r) {
      const Coord c = coord_of(mesh, r);
      EXPECT_EQ(rank_of(mesh, c), r);
      EXPECT_TRUE(seen.insert(c).second);
      for (const Axis axis : kAxes) {
        EXPECT_GE(along(c, axis), 0);
        EXPECT_LT(along(c, axis), extent(mesh, axis));
      }
    }
  });
}

TEST(Mesh, LastAxisVariesFastest) {
  for_each_mesh([](const Mesh& mesh) {
    for (Rank r = 0; r + 1 < size(mesh); ++r) {
      const auto key = [](const Coord& c) {
        return std::tuple(c.pp, c.dp, c.tp[0], c.tp[1], c.tp[2]);
      };
      EXPECT_LT(key(coord_of(mesh, r)), key(coord_of(mesh, r + 1)));
    }
  });
}

TEST(Mesh, GroupsAlongAnAxisPartitionTheRanks) {
  for_each_mesh([](const Mesh& mesh) {
    for (const Axis axis : kAxes) {
      std::set<Group> groups;
      for (Rank r = 0; r < size(mesh); ++r) groups.insert(group_of(mesh, r, axis));
      std::vector<int> times(static_cast<std::size_t>(size(mesh)));
      for (const Group& group : groups) {
        EXPECT_EQ(static_cast<int>(group.size()), extent(mesh, axis));
        EXPECT_TRUE(std::ranges::is_sorted(group));
        for (const Rank r : group) {
          ++times[static_cast<std::size_t>(r)];
          EXPECT_EQ(group_of(mesh, r, axis), group);
        }
      }
      EXPECT_EQ(std::ranges::count(times, 1), size(mesh));
    }
  });
}

TEST(Mesh, MembersOfAGroupDifferAlongItsAxisOnlyAndStandInItsOrder) {
  for_each_mesh([](const Mesh& mesh) {
    for (const Axis axis : kAxes)
      for (Rank r = 0; r < size(mesh); ++r) {
        const Group group = group_of(mesh, r, axis);
        for (std::size_t i = 0; i < group.size(); ++i) {
          const Coord c = coord_of(mesh, group[i]);
          EXPECT_EQ(along(c, axis), static_cast<int>(i));
          EXPECT_EQ(member_of(group, group[i]), static_cast<int>(i));
          for (const Axis other : kAxes) {
            if (other == axis) continue;
            EXPECT_EQ(along(c, other), along(coord_of(mesh, r), other));
          }
        }
      }
  });
}

// Over every subset of the axes: sorted, of the right size, and exactly those who agree elsewhere.
TEST(Mesh, GroupsAlongSeveralAxesAreThoseWhoAgreeAlongTheOthers) {
  for_each_mesh([](const Mesh& mesh) {
    for (unsigned subset = 0; subset < 32; ++subset) {
      std::vector<Axis> axes;
      for (std::size_t i = 0; i < kAxes.size(); ++i)
        if (subset >> i & 1) axes.push_back(kAxes[i]);
      const auto differs = [&](Axis axis) { return std::ranges::count(axes, axis) > 0; };
      for (Rank r = 0; r < size(mesh); r += 5) {
        Group expected;
        for (Rank other = 0; other < size(mesh); ++other)
          if (std::ranges::all_of(kAxes, [&](Axis axis) {
                return differs(axis) ||
                       along(coord_of(mesh, r), axis) == along(coord_of(mesh, other), axis);
              }))
            expected.push_back(other);
        EXPECT_EQ(group_of(mesh, r, axes), expected);
      }
    }
  });
}

TEST(Mesh, NeighboursAreAlongTheAxisAndNothingIsPastTheEnds) {
  for_each_mesh([](const Mesh& mesh) {
    for (const Axis axis : kAxes)
      for (Rank r = 0; r < size(mesh); ++r)
        for (int offset = -5; offset <= 5; ++offset) {
          const int place = along(coord_of(mesh, r), axis) + offset;
          const auto found = neighbour(mesh, r, axis, offset);
          EXPECT_EQ(found.has_value(), place >= 0 && place < extent(mesh, axis));
          if (!found) continue;
          EXPECT_EQ(group_of(mesh, r, axis).at(static_cast<std::size_t>(place)), *found);
          EXPECT_EQ(neighbour(mesh, *found, axis, -offset), r);
        }
  });
}

TEST(Mesh, TensorParallelPeersAreConsecutiveRanks) {
  for_each_mesh([](const Mesh& mesh) {
    for (Rank r = 0; r < size(mesh); ++r) {
      const Group group = group_of(mesh, r, {Axis::tp0, Axis::tp1, Axis::tp2});
      EXPECT_EQ(group.back() - group.front() + 1, tp_size(mesh));
      if (const auto next = neighbour(mesh, r, Axis::pp, 1)) {
        EXPECT_EQ(*next - r, mesh.dp * tp_size(mesh));
      }
    }
  });
}

TEST(Mesh, CheckAcceptsTheRightNumberOfRanksAndNoOther) {
  for_each_mesh([](const Mesh& mesh) {
    EXPECT_TRUE(check(mesh, size(mesh)).empty());
    for (const int ranks : {0, size(mesh) - 1, size(mesh) + 1})
      EXPECT_EQ(check(mesh, ranks).size(), 1u);
  });
}

TEST(Mesh, CheckNamesEveryAxisThatIsWrong) {
  const Problems expected = {{"mesh.pp", "is 0, must be at least 1"},
                             {"mesh.dp", "is -2, must be at least 1"},
                             {"mesh.tp1", "is 0, must be at least 1"}};
  EXPECT_EQ(check({.pp = 0, .dp = -2, .tp = {1, 0, 1}}, 4), expected);
  const Problems other = {{"mesh", "pp 2 x dp 4 x tp 2x2 needs 32 ranks, there are 4"}};
  EXPECT_EQ(check({.pp = 2, .dp = 4, .tp = {2, 2, 1}}, 4), other);
}

TEST(Mesh, CheckIsNotFooledByAProductThatOverflows) {
  EXPECT_EQ(check({.pp = 1 << 16, .dp = 1 << 16}, 0).size(), 1u);
  EXPECT_EQ(check({.pp = 1 << 30, .dp = 4, .tp = {1 << 30, 4, 1}}, 1).size(), 1u);
}

TEST(Mesh, TextLeavesOutAxesOfSizeOne) {
  EXPECT_EQ(to_text(Mesh{}), "one rank");
  EXPECT_EQ(to_text(Mesh{.dp = 4}), "dp 4");
  EXPECT_EQ(to_text(Mesh{.pp = 2, .dp = 4, .tp = {2, 2, 1}}), "pp 2 x dp 4 x tp 2x2");
  EXPECT_EQ(to_text(Mesh{.pp = 3, .tp = {1, 1, 2}}), "pp 3 x tp 2");
  EXPECT_EQ(to_text(Coord{.dp = 3, .tp = {1, 0, 0}}), "pp 0, dp 3, tp 1,0,0");
}

TEST(Mesh, AxesHaveTheirNames) {
  std::string names;
  for (const Axis axis : kAxes) names += std::string(name_of(axis)) + " ";
  EXPECT_EQ(names, "pp dp tp0 tp1 tp2 ");
}

TEST(Mesh, RankOutsideTheMeshIsOurMistake) {
  EXPECT_THROW(coord_of(Mesh{.dp = 2}, 2), std::logic_error);
  EXPECT_THROW(coord_of(Mesh{.dp = 2}, -1), std::logic_error);
  EXPECT_THROW(member_of({0, 2}, 1), std::logic_error);
}

std::vector<Mesh> all_meshes() {
  std::vector<Mesh> meshes;
  for (int pp = 1; pp <= 4; ++pp)
    for (int dp = 1; dp <= 3; ++dp)
      for (int tp0 = 1; tp0 <= 2; ++tp0)
        for (int tp1 = 1; tp1 <= 2; ++tp1) meshes.push_back({pp, dp, {tp0, tp1, 1}});
  return meshes;
}

// By definition: the ends of the pipeline, at the same tensor coordinates.
Group holders(const Mesh& mesh, Rank rank, bool of_all_replicas) {
  const Coord mine = coord_of(mesh, rank);
  Group group;
  for (const int pp : {0, mesh.pp - 1})
    for (int dp = 0; dp < mesh.dp; ++dp)
      if (of_all_replicas || dp == mine.dp)
        group.push_back(rank_of(mesh, {.pp = pp, .dp = dp, .tp = mine.tp}));
  if (mesh.pp == 1) group.resize(group.size() / 2);  // both ends are one
  return mine.pp == 0 || mine.pp == mesh.pp - 1 ? group : Group();
}

Group ends_of(const Mesh& mesh, Rank rank, bool of_all_replicas) {
  const int pp = coord_of(mesh, rank).pp;
  if (pp != 0 && pp != mesh.pp - 1) return {};
  return group_at(mesh, rank, {0, mesh.pp - 1}, of_all_replicas);
}

TEST(Mesh, GroupsAtPlacesHaveTheSameTensorCoordinates) {
  for (const Mesh& mesh : all_meshes())
    for (Rank rank = 0; rank < size(mesh); ++rank) {
      EXPECT_EQ(ends_of(mesh, rank, true), holders(mesh, rank, true))
          << to_text(mesh) << " " << rank;
      EXPECT_EQ(ends_of(mesh, rank, false), holders(mesh, rank, false))
          << to_text(mesh) << " " << rank;
    }
}

TEST(Mesh, ThereAreAsManyGroupsOfBothEndsAsTensorRanksAndEachHasTwoPerReplica) {
  for (const Mesh& mesh : all_meshes()) {
    std::set<Group> groups, pairs;
    for (Rank rank = 0; rank < size(mesh); ++rank) {
      groups.insert(ends_of(mesh, rank, true));
      pairs.insert(ends_of(mesh, rank, false));
    }
    groups.erase(Group());
    pairs.erase(Group());
    const auto tensor_ranks = static_cast<std::size_t>(tp_size(mesh));
    const auto replicas = static_cast<std::size_t>(mesh.dp);
    EXPECT_EQ(groups.size(), tensor_ranks) << to_text(mesh);
    EXPECT_EQ(pairs.size(), tensor_ranks * replicas) << to_text(mesh);
    const std::size_t ends = mesh.pp == 1 ? 1 : 2;
    std::set<Rank> members;
    for (const Group& group : groups) {
      EXPECT_EQ(group.size(), ends * replicas) << to_text(mesh);
      members.insert(group.begin(), group.end());
    }
    EXPECT_EQ(members.size(), ends * replicas * tensor_ranks) << to_text(mesh);  // none in two
  }
}

}  // namespace
}  // namespace laconic
