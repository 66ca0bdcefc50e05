// mesh/mesh.hpp — where every rank sits in the pp x dp x tp grid.
//
// Integers only: no sockets, no tensors, nothing to initialise, so every
// question about the arrangement can be asked in a unit test or on paper.
//
// tp is itself a grid of up to three axes (1-D, 2-D and 2.5-D, 3-D tensor
// parallelism); an axis that is not used has size 1. Order: the last tp axis
// varies fastest (or which Mesh::order says), then the others, then dp, then pp. Tensor-parallel
// peers are thus consecutive ranks (the chattiest traffic stays inside a machine) and pipeline
// neighbours are dp * tp apart.
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

using Rank = int;

enum class Axis { pp, dp, tp0, tp1, tp2 };
inline constexpr std::array kAxes = {Axis::pp, Axis::dp, Axis::tp0, Axis::tp1, Axis::tp2};
inline constexpr std::array kTensorAxes = {Axis::tp0, Axis::tp1, Axis::tp2};

struct Mesh {
  int pp = 1;
  int dp = 1;
  std::array<int, 3> tp = {1, 1, 1};
  // Which axes of tp vary slowest in rank numbers, outermost first; a permutation.
  std::array<int, 3> order = {0, 1, 2};
  auto operator<=>(const Mesh&) const = default;
};

// Where one rank sits.
struct Coord {
  int pp = 0;
  int dp = 0;
  std::array<int, 3> tp = {0, 0, 0};
  auto operator<=>(const Coord&) const = default;
};

// Ranks that talk together, in the order of their members: member i is group[i].
using Group = std::vector<Rank>;

int extent(const Mesh& mesh, Axis axis);
int along(const Coord& coord, Axis axis);
int tp_size(const Mesh& mesh);
int size(const Mesh& mesh);  // of the whole grid

// Inverse of each other for every rank in [0, size(mesh)).
Coord coord_of(const Mesh& mesh, Rank rank);
Rank rank_of(const Mesh& mesh, const Coord& coord);

// The ranks that differ from `rank` only along these axes, in rank order, `rank` included.
Group group_of(const Mesh& mesh, Rank rank, Axis axis);
Group group_of(const Mesh& mesh, Rank rank, const std::vector<Axis>& axes);
// The ranks at these places along pp that have the tp coordinates of `rank` (another shard is
// another tensor), in rank order: of its own replica, or of all.
Group group_at(const Mesh& mesh, Rank rank, const std::vector<int>& places, bool of_all_replicas);
// The place of `rank` in the group. Requires: it is there.
int member_of(const Group& group, Rank rank);

// The rank `offset` places further along `axis`; nothing past either end.
std::optional<Rank> neighbour(const Mesh& mesh, Rank rank, Axis axis, int offset);

// Every reason why such a mesh cannot be run by `ranks` ranks.
Problems check(const Mesh& mesh, int ranks);

std::string to_text(const Mesh& mesh);    // "pp 2 x dp 4 x tp 2x2"; axes of size 1 are left out
std::string to_text(const Coord& coord);  // "pp 0, dp 3, tp 1,0,0"
std::string_view name_of(Axis axis);      // "tp0"

}  // namespace laconic
