// simulate/grid_program.hpp — what a tensor grid moves while a stage is computed, as strands.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/policy/grid_policy.hpp"
#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

// Makes the collectives of the passes of all ranks. Ranks that make one together must ask for it
// with the same number: whoever comes first makes it for all.
class GridProgram {
 public:
  GridProgram(ProgramBuilder& builder, const SimulationRequest& request);

  bool is_trivial() const { return is_trivial_; }
  // What one pass of a block does on a rank, in the blocks of a stage.
  const std::vector<GridEvent>& events(int stage, std::int64_t block, bool is_backward) const;
  // The strand of a collective on a rank. `pass` tells microbatches and steps apart.
  int strand_of(int rank, const GridEvent& start, int stage, std::uint64_t pass);

 private:
  CollectiveSpec spec_of(const GridTraffic& traffic, Rank rank);
  const Group& group_of(Rank rank, const Axes& axes);
  ExchangeStrands add_calls(const GridEvent& start, Rank rank);

  ProgramBuilder& builder_;
  const SimulationRequest& request_;
  const bool is_trivial_;
  const Mesh mesh_;
  const GridPolicy policy_;
  std::vector<std::vector<GridBlockEvents>> by_stage_;  // by stage, then by block of the model
  std::map<std::pair<Rank, Axes>, Group> groups_;
  struct Made {
    int stage;
    std::uint64_t pass;
    std::size_t number;
    bool is_backward;
    int member;  // the least class of the group
    auto operator<=>(const Made&) const = default;
  };
  std::map<Made, ExchangeStrands> made_;
};

}  // namespace laconic
