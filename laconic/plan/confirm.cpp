#include "laconic/plan/confirm.hpp"

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

std::optional<double> simulated_seconds(const RunConfig& asked, const Hosts& hosts,
                                        const std::vector<int>& seating) {
  RunConfig config = asked;
  const Family family = family_of(config, {});
  const GridPlan grid = grid_plan_of(config, family);
  ModelSpec spec = model_spec(family, context_of(family));
  add_grid_codes(spec, grid);
  const PipelineDecisions decisions = decide_for(config, spec, hosts);
  const SimulationRequest request{.config = config,
                                  .spec = spec,
                                  .grid = grid,
                                  .decisions = decisions,
                                  .hosts = hosts,
                                  .seating = seating};
  if (!check(request).empty()) return std::nullopt;
  return simulate(request).step_seconds;
}

}  // namespace laconic
