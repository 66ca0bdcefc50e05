// Whether a candidate fits, with dims that are still open, too.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "laconic/architecture/grid_memory.hpp"
#include "laconic/config/optimiser_section.hpp"
#include "laconic/plan/step_facts.hpp"
#include "laconic/policy/class_policy.hpp"

namespace laconic {

namespace {

constexpr double kProgramBytes = 212e6;  // of a rank (bench/results/2026-11-16-rank-memory.md)

}  // namespace

// References of one boundary on a rank: the least that a place of the pipeline has of them.
double StepModel::references_of(const Facts& f, const RunConfig& applied) const {
  const LinkSpec link = activation_link(applied);
  const auto* delta = std::get_if<Delta>(&link.memory);
  if (applied.pp_activation.boundaries != kAllPlaces) return 0;  // of a place that has none
  if (delta == nullptr || !delta->folder.empty() || delta->budget_bytes > 0 ||
      delta->device_bytes > 0)
    return 0;
  const std::int64_t samples = space_.base.train.batch * space_.base.train.steps;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t b = 0; b + 1 < space_.spec.blocks.size(); ++b)
    least = std::min(least, static_cast<double>(reference_bytes(
                                link, space_.spec.blocks[b].out,
                                static_cast<std::uint64_t>(samples / f.arrangement.dp))));
  return least * (f.has_grid ? share_of_seam(f.grid()) : 1);
}

// A place of the pipeline has some blocks whole, and at one time what forward keeps of a microbatch
// in all of them, whatever the schedule: no block is done backward before all are forward. So the
// fullest place has at least the mean, and of any `count` blocks one has their number by that of
// places, rounded up.
double StepModel::least_held(const Facts& f, RunPrecision precision, bool recomputes,
                             std::int64_t samples) const {
  RunSection run = space_.base.run;
  run.precision = precision;
  const auto item = static_cast<double>(bytes_of(run.compute_type())),
             master = static_cast<double>(bytes_of(run.master_type()));
  const double per_element =
      master * (2 + moment_count(space_.base.optimiser.kind, true)) + (item == master ? 0 : item);
  const double per_kept = item * static_cast<double>(samples);
  const GridPlan grid = f.has_grid ? f.grid() : GridPlan();
  struct Weight {
    double bytes, at_work;
  };
  // Of a grid weights that are gathered for a map come on top.
  const std::vector<double> gathered = f.has_grid
                                           ? gathered_on_a_rank(space_.spec, grid, samples, false)
                                           : std::vector<double>(space_.spec.blocks.size(), 0);
  std::vector<Weight> weights;
  double all = per_element * f.of_grid->trained_elements, least_at_work = kEver;
  for (std::size_t b = 0; b < space_.spec.blocks.size(); ++b) {
    const BlockSpec& block = space_.spec.blocks[b];
    const double kept = per_kept * kept_on_a_rank(grid, block, recomputes);
    Weight& weight = weights.emplace_back(
        Weight{kept, per_kept * at_work_on_a_rank(grid, block, recomputes) + item * gathered[b]});
    for (const std::size_t p : block.uses)
      if (users_[p] == 1 && !space_.spec.parameters[p].is_frozen)
        weight.bytes += per_element * f.elements()[p];
    all += kept;
    least_at_work = std::min(least_at_work, weight.at_work);
  }
  const int places = f.arrangement.pp;
  double least = all / places + least_at_work;
  std::ranges::sort(weights, std::greater<>(), &Weight::bytes);
  least_at_work = kEver;
  for (std::size_t count = 1; count <= weights.size(); ++count) {
    const Weight& smallest = weights[count - 1];
    least_at_work = std::min(least_at_work, smallest.at_work);
    least = std::max(
        least, std::ceil(static_cast<double>(count) / places) * smallest.bytes + least_at_work);
  }
  return least;
}

// With the choices that need least, where they are open.
double StepModel::least_held(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  Candidate open = candidate;
  for (std::size_t dim = static_cast<std::size_t>(PlanDim::precision); dim < kPlanDims; ++dim)
    open.choice[dim] = static_cast<PlanDim>(dim) < PlanDim::microbatch ? 0 : kOpen;
  int size = candidate.at(PlanDim::microbatch);
  if (size == kOpen) {
    const std::vector<int> sizes = options(space_, open);  // the largest first
    if (sizes.empty()) return 0;
    size = sizes.back();
  }
  const int precision = candidate.at(PlanDim::precision),
            recompute = candidate.at(PlanDim::recompute);
  const auto [place, is_new] = least_held_.try_emplace(
      {f.of_grid->number, f.arrangement.pp, precision, recompute, size, f.has_grid ? 1 : 0}, kEver);
  if (!is_new) return place->second;
  for (std::size_t i = 0; i < space_.precisions.size(); ++i)
    for (std::size_t j = 0; j < space_.recomputes.size(); ++j)
      if (is_open_to(precision, i) && is_open_to(recompute, j))
        place->second = std::min(place->second,
                                 least_held(f, space_.precisions[i], space_.recomputes[j],
                                            space_.microbatches[static_cast<std::size_t>(size)]));
  return place->second;
}

Fit StepModel::least_fit(const Candidate& candidate) {
  Fit fit;
  if (candidate.at(PlanDim::arrangement) == kOpen) return fit;
  const Facts& f = facts(candidate);
  const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(f.seats.front().group)];
  const int policy = candidate.at(PlanDim::pp_policy);
  if (policy != kOpen && f.arrangement.pp > 1 && group.memory_bytes > 0) {
    fit.needed = references_of(
        f,
        space_.policies[static_cast<std::size_t>(PolicyClass::pp)][static_cast<std::size_t>(policy)]
            .applied);
    fit.has = group.memory_bytes;
    fit.where = "a host of " + group.name;
    fit.fits = fit.needed <= fit.has;
    if (!fit.fits) return fit;
  }
  double memory = 0;  // of the largest GPU that has a part
  for (const std::vector<int>& groups : f.groups)
    for (const int g : groups) {
      const HostGroup& one = space_.hosts.groups[static_cast<std::size_t>(g)];
      if (!one.device.is_gpu || one.device.memory_bytes <= 0) return fit;
      if (one.device.memory_bytes > memory) fit.where = "a GPU of " + one.name;
      memory = std::max(memory, one.device.memory_bytes);
    }
  fit.needed = least_held(candidate);
  fit.has = memory;
  fit.fits = fit.needed <= fit.has;
  return fit;
}

Fit StepModel::fit(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const RunConfig config = config_of(space_, candidate);
  const auto samples = static_cast<std::uint64_t>(config.train.batch * config.train.steps);
  Fit fit{.by_place = rank_memory({config, space_.spec, decisions(candidate, config),
                                   f.has_grid ? f.grid() : GridPlan(), samples})};
  // What a host holds: ranks that share cores share the machine.
  std::map<std::pair<int, int>, double> needed;
  const int width = f.arrangement.dp * f.arrangement.tp();
  double tightest = -1;
  const auto consider = [&](double bytes, double has, const std::string& where) {
    const double use = has > 0 ? bytes / has : 0;
    if (use <= tightest) return;
    tightest = use;
    fit.needed = bytes;
    fit.has = has;
    fit.where = where;
  };
  for (std::size_t rank = 0; rank < f.seats.size(); ++rank) {
    MemoryEstimate& memory = fit.by_place[rank / static_cast<std::size_t>(width)];
    memory.program = kProgramBytes;
    const Seat& seat = f.seats[rank];
    const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(seat.group)];
    const bool is_gpu = group.device.is_gpu;
    if (is_gpu)
      consider(memory.on_gpu(true).total(), group.device.memory_bytes, "a GPU of " + group.name);
    needed[{seat.group, group.cores > 0 ? 0 : seat.host}] +=
        is_gpu ? memory.on_host(true).total() : memory.total();
  }
  for (const auto& [place, bytes] : needed) {
    const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(place.first)];
    consider(bytes, group.memory_bytes, "a host of " + group.name);
  }
  fit.fits = fit.has <= 0 || fit.needed <= fit.has;
  return fit;
}

}  // namespace laconic
