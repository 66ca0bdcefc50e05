// Whether a candidate fits, with dims that are still open, too.
#include <algorithm>
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

// The fullest place has at least the mean of parameters and what is kept of a microbatch; the stage
// of a rank that has two of them, half of that.
bool StepModel::may_fit(const Candidate& candidate) {
  if (candidate.at(PlanDim::arrangement) == kOpen) return true;
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(f.seats.front().group)];
  const int policy = candidate.at(PlanDim::pp_policy);
  if (policy != kOpen && a.pp > 1 && group.memory_bytes > 0 &&
      references_of(
          f,
          space_
              .policies[static_cast<std::size_t>(PolicyClass::pp)][static_cast<std::size_t>(policy)]
              .applied) > group.memory_bytes)
    return false;
  double memory = 0;  // of the largest GPU that has a part
  for (const std::vector<int>& groups : f.groups)
    for (const int g : groups) {
      const HostDevice& device = space_.hosts.groups[static_cast<std::size_t>(g)].device;
      if (!device.is_gpu || device.memory_bytes <= 0) return true;
      memory = std::max(memory, device.memory_bytes);
    }
  const double copies = 2 + moment_count(space_.base.optimiser.kind, true);
  double bytes = 4 * copies * f.of_grid->trained_elements / a.pp;
  if (candidate.at(PlanDim::microbatch) != kOpen) {
    const auto chosen = [&](PlanDim dim) { return static_cast<std::size_t>(candidate.at(dim)); };
    RunSection run = space_.base.run;
    run.precision = space_.precisions[chosen(PlanDim::precision)];
    double kept = 0;
    for (const BlockSpec& block : space_.spec.blocks)
      kept += kept_on_a_rank(f.has_grid ? f.grid() : GridPlan(), block,
                             space_.recomputes[chosen(PlanDim::recompute)]);
    const auto samples = static_cast<double>(space_.microbatches[chosen(PlanDim::microbatch)]);
    bytes += kept * samples * static_cast<double>(bytes_of(run.compute_type())) / a.pp /
             (a.pp > 1 ? 2 : 1);
  }
  return bytes <= memory;
}

Fit StepModel::fit(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const RunConfig config = config_of(space_, candidate);
  const LinkFacts link{.bytes_per_second = per_second(1, f.patterns.edge.seconds_per_byte),
                       .latency = f.patterns.edge.latency};
  const PipelineDecisions decisions =
      decide_pipeline(config, space_.spec, link, [&] { return block_times(candidate); });
  const auto samples = static_cast<std::uint64_t>(config.train.batch * config.train.steps);
  Fit fit{.by_place = rank_memory(
              {config, space_.spec, decisions, f.has_grid ? f.grid() : GridPlan(), samples})};
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
