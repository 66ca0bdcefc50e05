// simulate/rank_class.hpp — ranks that do the same at the same time, so that one stands for all.
//
// Replicas have the same program, and so have the ranks of a tensor grid. If their hosts are alike
// and no two of them share one, turning the axis round changes nothing that anybody could see: such
// ranks make a class. What is between them is then one message of many flows. In a pipeline the
// first and the last replica are no such ranks: sums over several stages go round all replicas, and
// these two have neighbours of the other stage, so that their links are shared otherwise.
//
// What one could get wrong: ranks have an outbox for each peer, and a class has peers of several
// kinds in another one: of the own replica, of the next one, of all others. Messages of different
// kinds do not wait for each other, so that each kind is a way of its own.
#pragma once

#include <array>
#include <vector>

#include "laconic/hosts/hosts.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct RankClasses {
  std::vector<int> class_of;  // by rank
  std::vector<Rank> first;    // by class: the least of its ranks, which stands for it
  std::vector<int> members;   // by class: how many
  // By rank: where it is along the axes that were folded (dp, and those of the grid), and how far
  // these go. Along others all are at 0.
  std::vector<std::array<int, 4>> places;
  std::array<int, 4> extents = {1, 1, 1, 1};
  int count() const { return static_cast<int>(first.size()); }
  // The kind of peer that a rank is to another: 0 at the same place; then by the axes along which
  // they differ, with those apart that are one further, as neighbours in a ring are.
  int way_between(Rank from, Rank to) const;
};

enum class Folding : std::uint8_t {
  never,
  always,     // wherever it can be
  automatic,  // the same of more than 64 ranks
};

// `seats` by rank. Each rank is a class of its own where nothing can be folded.
RankClasses classes_of(const Mesh& mesh, const Hosts& hosts, const std::vector<Seat>& seats,
                       Folding folding);

}  // namespace laconic
