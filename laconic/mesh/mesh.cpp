#include "laconic/mesh/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

int& along(Coord& coord, Axis axis) {
  if (axis == Axis::pp) return coord.pp;
  if (axis == Axis::dp) return coord.dp;
  return coord.tp.at(static_cast<std::size_t>(axis) - static_cast<std::size_t>(Axis::tp0));
}

// Axes from the one that varies slowest to the fastest.
std::array<Axis, 5> in_order(const Mesh& mesh) {
  std::array<Axis, 5> axes = {Axis::pp, Axis::dp};
  for (std::size_t n = 0; n < 3; ++n)
    axes[2 + n] = kTensorAxes.at(static_cast<std::size_t>(mesh.order[n]));
  return axes;
}

}  // namespace

int along(const Coord& coord, Axis axis) {
  Coord copy = coord;
  return along(copy, axis);
}

int extent(const Mesh& mesh, Axis axis) {
  if (axis == Axis::pp) return mesh.pp;
  if (axis == Axis::dp) return mesh.dp;
  return mesh.tp.at(static_cast<std::size_t>(axis) - static_cast<std::size_t>(Axis::tp0));
}

int tp_size(const Mesh& mesh) {
  return mesh.tp[0] * mesh.tp[1] * mesh.tp[2];
}

int size(const Mesh& mesh) {
  return mesh.pp * mesh.dp * tp_size(mesh);
}

Coord coord_of(const Mesh& mesh, Rank rank) {
  LACONIC_ASSERT(rank >= 0 && rank < size(mesh), fmt::format("{} of {}", rank, size(mesh)));
  Coord coord;
  const std::array<Axis, 5> axes = in_order(mesh);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    along(coord, *axis) = rank % extent(mesh, *axis);
    rank /= extent(mesh, *axis);
  }
  return coord;
}

Rank rank_of(const Mesh& mesh, const Coord& coord) {
  Rank rank = 0;
  Coord c = coord;
  for (const Axis axis : in_order(mesh)) rank = rank * extent(mesh, axis) + along(c, axis);
  return rank;
}

Group group_of(const Mesh& mesh, Rank rank, Axis axis) {
  return group_of(mesh, rank, std::vector<Axis>{axis});
}

Group group_of(const Mesh& mesh, Rank rank, const std::vector<Axis>& axes) {
  const auto home = [&](Rank r) {  // where r would be at the start of all the axes
    Coord c = coord_of(mesh, r);
    for (const Axis axis : axes) along(c, axis) = 0;
    return c;
  };
  Group group;
  for (Rank r = 0; r < size(mesh); ++r)
    if (home(r) == home(rank)) group.push_back(r);
  return group;
}

Group group_at(const Mesh& mesh, Rank rank, const std::vector<int>& places, bool of_all_replicas) {
  Group group =
      of_all_replicas ? group_of(mesh, rank, {Axis::pp, Axis::dp}) : group_of(mesh, rank, Axis::pp);
  std::erase_if(group, [&](Rank r) {
    return std::find(places.begin(), places.end(), coord_of(mesh, r).pp) == places.end();
  });
  return group;
}

int member_of(const Group& group, Rank rank) {
  const auto found = std::find(group.begin(), group.end(), rank);
  LACONIC_ASSERT(found != group.end(), fmt::format("rank {}", rank));
  return static_cast<int>(found - group.begin());
}

std::optional<Rank> neighbour(const Mesh& mesh, Rank rank, Axis axis, int offset) {
  Coord c = coord_of(mesh, rank);
  along(c, axis) += offset;
  if (along(c, axis) < 0 || along(c, axis) >= extent(mesh, axis)) return std::nullopt;
  return rank_of(mesh, c);
}

Problems check(const Mesh& mesh, int ranks) {
  Problems problems;
  for (const Axis axis : kAxes)
    if (extent(mesh, axis) < 1)
      problems.push_back({fmt::format("mesh.{}", name_of(axis)),
                          fmt::format("is {}, must be at least 1", extent(mesh, axis))});
  std::array<int, 3> sorted = mesh.order;
  std::ranges::sort(sorted);
  if (sorted != std::array{0, 1, 2})
    problems.push_back(
        {"mesh.order", fmt::format("is {}, {}, {}, which does not name 0, 1 and 2 once",
                                   mesh.order[0], mesh.order[1], mesh.order[2])});
  if (!problems.empty()) return problems;
  double needed = 1;  // a product of ints may not be an int, and must not come round to `ranks`
  for (const Axis axis : kAxes) needed *= extent(mesh, axis);
  if (needed != ranks)
    problems.push_back(
        {"mesh", fmt::format("{} needs {:.0f} ranks, there are {}", to_text(mesh), needed, ranks)});
  return problems;
}

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, 5> names = {"pp", "dp", "tp0", "tp1", "tp2"};
  return names.at(static_cast<std::size_t>(axis));
}

std::string to_text(const Mesh& mesh) {
  std::vector<std::string> parts;
  if (mesh.pp > 1) parts.push_back(fmt::format("pp {}", mesh.pp));
  if (mesh.dp > 1) parts.push_back(fmt::format("dp {}", mesh.dp));
  std::string grid;
  for (const int n : mesh.tp)
    if (n > 1) grid += fmt::format("{}{}", grid.empty() ? "" : "x", n);
  if (!grid.empty()) parts.push_back("tp " + grid);
  return parts.empty() ? "one rank" : join(parts, " x ");
}

std::string to_text(const Coord& c) {
  return fmt::format("pp {}, dp {}, tp {},{},{}", c.pp, c.dp, c.tp[0], c.tp[1], c.tp[2]);
}

}  // namespace laconic
