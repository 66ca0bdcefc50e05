#include "laconic/schedule/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

Placement round_robin(int ranks, int stages) {
  Placement placement;
  if (ranks < 1) return placement;
  for (int stage = 0; stage < stages; ++stage) placement.push_back(stage % ranks);
  return placement;
}

Placement v_shape(int ranks) {
  Placement placement;
  for (int rank = 0; rank < ranks; ++rank) placement.push_back(rank);
  for (int rank = ranks; rank-- > 0;) placement.push_back(rank);
  return placement;
}

Problems check(const Placement& placement, int ranks, int stages) {
  Problems problems;
  const auto problem = [&](std::string what) {
    problems.push_back({"placement", std::move(what)});
  };
  if (placement.size() != static_cast<std::size_t>(std::max(stages, 0)))
    problem(fmt::format("the placement says the ranks of {} stages, there are {}", placement.size(),
                        stages));
  for (std::size_t stage = 0; stage < placement.size(); ++stage)
    if (placement[stage] < 0 || placement[stage] >= ranks)
      problem(fmt::format("stage {} is placed on rank {}, ranks are 0 ... {}", stage,
                          placement[stage], ranks - 1));
  for (int rank = 0; rank < ranks; ++rank)
    if (std::ranges::find(placement, rank) == placement.end())
      problem(fmt::format("no stage is placed on rank {}", rank));
  return problems;
}

std::vector<int> stages_of_rank(const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < static_cast<int>(schedule.placement.size()); ++stage)
    if (rank_of_stage(schedule, stage) == rank) stages.push_back(stage);
  return stages;
}

bool crosses_ranks(const Schedule& schedule, int edge) {
  return edge >= 0 && edge < edge_count(schedule.shape) &&
         rank_of_stage(schedule, edge) != rank_of_stage(schedule, edge + 1);
}

std::string to_text(const Placement& placement) {
  return fmt::format("{}", fmt::join(placement, " "));
}

}  // namespace laconic
