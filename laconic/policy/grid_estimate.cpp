#include "laconic/policy/grid_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/config/grid_choice.hpp"
#include "laconic/policy/grid_policy.hpp"

namespace laconic {

namespace {

GridBytesHeld bytes_held(const RunConfig& config, const GridHolding& held) {
  const auto item = static_cast<double>(bytes_of(config.run.compute_type()));
  const auto master = static_cast<double>(bytes_of(config.run.master_type()));
  const int moments = moment_count(config.optimiser.kind, false);  // grids refuse muon
  return {.parameters = held.parameters * (item == master ? master : master + item),
          .gradients = held.gradients * master,
          .optimiser = held.parameters * master * moments,
          .activations = held.activations * item,
          .gathered = held.gathered * item};
}

// The grids that a method could mean, whatever the model is; those that another method has by
// another name are left to it.
std::vector<std::array<int, 3>> grids_for(TensorMethod method, int ranks) {
  std::vector<std::array<int, 3>> grids;
  switch (method) {
    case TensorMethod::one_d:
    case TensorMethod::one_d_sequence: return {{1, ranks, 1}};
    case TensorMethod::two_d:
      for (int q = 2; q * q <= ranks; ++q)
        if (q * q == ranks) grids.push_back({q, q, 1});
      return grids;
    case TensorMethod::two_and_half_d:
      for (int q = 2; q * q < ranks; ++q)
        if (ranks % (q * q) == 0) grids.push_back({q, q, ranks / (q * q)});
      return grids;
    case TensorMethod::three_d:
      for (int pi = 1; pi <= ranks; ++pi)
        for (int pj = 1; ranks % pi == 0 && pj <= ranks / pi; ++pj)
          if (ranks / pi % pj == 0 && pj < ranks) grids.push_back({pi, pj, ranks / pi / pj});
      return grids;
  }
  return grids;
}

GridCandidate candidate_of(RunConfig config, const Family& family, TensorMethod method,
                           const std::array<int, 3>& grid, const GridMachine& machine) {
  config.tensor.method = method;
  config.mesh.tp = fmt::format("{}", fmt::join(grid, ","));
  GridCandidate candidate{
      .method = method, .grid = grid, .estimate = {}, .problems = check_grid_alone(config, family)};
  if (candidate.problems.empty()) candidate.estimate = estimate_grid(config, family, machine);
  return candidate;
}

// Where no grid of so many ranks is the method's.
GridCandidate nothing_for(TensorMethod method, int ranks) {
  const char* wanted = method == TensorMethod::two_d ? "q x q" : "q x q x d with q and d above 1";
  return {.method = method,
          .grid = {},
          .estimate = {},
          .problems = {{"mesh.tp", fmt::format("{} ranks are no {}", ranks, wanted)}}};
}

}  // namespace

std::vector<std::pair<TensorMethod, std::array<int, 3>>> grids_of_ranks(int ranks) {
  std::vector<std::pair<TensorMethod, std::array<int, 3>>> all;
  for (const auto& named : kTensorMethodNames)
    for (const std::array<int, 3>& grid : grids_for(named.value, ranks))
      all.emplace_back(named.value, grid);
  return all;
}

GridEstimate estimate_grid(const RunConfig& config, const Family& family,
                           const GridMachine& machine) {
  const ModelSpec spec = model_spec(family, context_of(family));
  const GridPlan plan = grid_plan_of(config, family);
  const GridLoad load{.samples = config.microbatch_size(),
                      .has_smoothing = config.task.label_smoothing > 0};
  const bool recomputes = config.model.recompute;
  const std::vector<GridBlockTime> times =
      grid_times(spec, plan, load, machine, grid_bytes_of(config, spec),
                 {.recomputes = recomputes, .prefetches = config.tensor.prefetch});
  const GridHolding held = grid_holding(spec, plan,
                                        {.samples = load.samples,
                                         .microbatches = config.microbatches(),
                                         .recomputes = recomputes,
                                         .prefetches = config.tensor.prefetch});
  return {.plan = plan,
          .step = grid_step_time(times, config.microbatches(), held.parameters, machine),
          .memory = bytes_held(config, held)};
}

std::vector<GridCandidate> search_grids(const RunConfig& config, const Family& family, int ranks,
                                        const GridMachine& machine) {
  std::vector<GridCandidate> candidates;
  for (const auto& named : kTensorMethodNames) {
    const TensorMethod method = named.value;
    const std::vector<std::array<int, 3>> grids = grids_for(method, ranks);
    if (grids.empty()) candidates.push_back(nothing_for(method, ranks));
    for (const std::array<int, 3>& grid : grids)
      candidates.push_back(candidate_of(config, family, method, grid, machine));
  }
  std::ranges::stable_sort(candidates, {}, [](const GridCandidate& c) {
    return c.estimate ? c.estimate->step.total() : HUGE_VAL;
  });
  return candidates;
}

}  // namespace laconic
