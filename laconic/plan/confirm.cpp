#include "laconic/plan/confirm.hpp"

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kMostMessages = 1'000'000;  // some seconds of a core
constexpr std::uint64_t kFewLanes = 16;

std::string reasons_of(const Problems& problems) {
  std::vector<std::string> reasons;
  for (const Problem& problem : problems) reasons.push_back(problem.what);
  return join(reasons, "; ");
}

}  // namespace

PlanConfirmation simulated_plan(const RunConfig& asked, const Hosts& hosts,
                                const std::vector<int>& seating) {
  RunConfig config = asked;
  const Family family = family_of(config, {});
  const GridPlan grid = grid_plan_of(config, family);
  ModelSpec spec = model_spec(family, context_of(family));
  add_grid_codes(spec, grid);
  const PipelineDecisions decisions = decide_for(config, spec, hosts);
  SimulationRequest request{.config = config,
                            .spec = spec,
                            .grid = grid,
                            .decisions = decisions,
                            .hosts = hosts,
                            .seating = seating,
                            .bounds = {.messages = kMostMessages}};
  const Problems problems = check(request);
  if (!problems.empty()) return {.why_not = reasons_of(problems)};
  try {
    return {.seconds = simulate(request).step_seconds};
  } catch (const ProgramTooLarge&) {
    request.folding = Folding::always;
    request.bounds.lanes = kFewLanes;
  }
  try {
    return {.seconds = simulate(request).step_seconds, .is_coarse = true};
  } catch (const ProgramTooLarge& error) {
    return {.why_not = error.what()};
  }
}

}  // namespace laconic
