#include "laconic/simulate/rank_class.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "laconic/base/index.hpp"

namespace laconic {

namespace {

constexpr int kMostWithoutFolding = 64;

// Which replicas are alike. In a pipeline sums over several stages go round all their replicas, and
// the first and the last have the neighbours of the other stage.
int role_of_replica(const Mesh& mesh, int dp) {
  if (mesh.pp == 1 || dp == 0) return 0;
  return dp + 1 == mesh.dp ? 2 : 1;
}

RankClasses classes_along(const Mesh& mesh, bool folds_replicas, bool folds_grid) {
  RankClasses classes;
  if (folds_replicas) classes.extents[0] = mesh.dp;
  if (folds_grid) std::ranges::copy(mesh.tp, classes.extents.begin() + 1);
  std::map<Coord, int> by_coord;
  for (Rank rank = 0; rank < size(mesh); ++rank) {
    Coord coord = coord_of(mesh, rank);
    std::array<int, 4>& place = classes.places.emplace_back();
    if (folds_replicas) place[0] = std::exchange(coord.dp, role_of_replica(mesh, coord.dp));
    if (folds_grid) {
      std::ranges::copy(coord.tp, place.begin() + 1);
      coord.tp = {0, 0, 0};
    }
    const auto [found, is_new] = by_coord.try_emplace(coord, classes.count());
    if (is_new) {
      classes.first.push_back(rank);
      classes.members.push_back(0);
    }
    classes.class_of.push_back(found->second);
    ++classes.members[index(found->second)];
  }
  return classes;
}

// Hosts that have ranks of one class must have ranks of the same classes, one of each, and be in
// one group. Ranks that share cores with others are not alone on their processor.
bool are_alike(const RankClasses& classes, const Hosts& hosts, const std::vector<Seat>& seats) {
  std::map<int, std::vector<int>> classes_of_host;
  for (std::size_t rank = 0; rank < classes.class_of.size(); ++rank)
    classes_of_host[seats[rank].host].push_back(classes.class_of[rank]);
  std::map<int, std::pair<int, std::vector<int>>> companions;  // by class: group, and who else
  for (std::size_t rank = 0; rank < classes.class_of.size(); ++rank) {
    const int own = classes.class_of[rank];
    const HostGroup& group = hosts.groups[index(seats[rank].group)];
    if (group.cores > 0 || (!group.card.full_duplex && classes.members[index(own)] > 1))
      return false;
    std::vector<int> here = classes_of_host[seats[rank].host];
    std::ranges::sort(here);
    if (std::ranges::adjacent_find(here) != here.end()) return false;
    const std::pair<int, std::vector<int>> all{seats[rank].group, std::move(here)};
    const auto [found, is_new] = companions.try_emplace(own, all);
    if (!is_new && found->second != all) return false;
  }
  return true;
}

}  // namespace

int RankClasses::way_between(Rank from, Rank to) const {
  int axes = 0;
  bool is_next = true;
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const int apart = places[index(to)][a] - places[index(from)][a];
    if (apart == 0) continue;
    axes |= 1 << a;
    is_next = is_next && (apart == 1 || apart == 1 - extents[a]);
  }
  return 2 * axes + (is_next ? 0 : 1);
}

RankClasses classes_of(const Mesh& mesh, const Hosts& hosts, const std::vector<Seat>& seats,
                       Folding folding) {
  const RankClasses single = classes_along(mesh, false, false);
  if (folding == Folding::never ||
      (folding == Folding::automatic && size(mesh) <= kMostWithoutFolding))
    return single;
  RankClasses best = single;
  for (const bool replicas : {true, false})
    for (const bool grid : {true, false}) {
      RankClasses classes = classes_along(mesh, replicas, grid);
      if (classes.count() < best.count() && are_alike(classes, hosts, seats))
        best = std::move(classes);
    }
  return best;
}

}  // namespace laconic
