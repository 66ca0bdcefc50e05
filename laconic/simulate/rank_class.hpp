// simulate/rank_class.hpp — ranks that do the same at the same time, so that one stands for all.
//
// Replicas have the same program, and so have the ranks of a tensor grid. If their hosts are alike
// and no two of them share one, turning the axis round changes nothing that anybody could see: such
// ranks make a class. What is between them is then one message of many flows. Sums whose members
// are of several classes, as those of stages with replicas, are taken as even: such steps come out
// up to a tenth too short (run_simulation_test).
#pragma once

#include <vector>

#include "laconic/hosts/hosts.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct RankClasses {
  std::vector<int> class_of;  // by rank
  std::vector<Rank> first;    // by class: the least of its ranks, which stands for it
  std::vector<int> members;   // by class: how many
  int count() const { return static_cast<int>(first.size()); }
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
