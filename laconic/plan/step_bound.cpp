// What a candidate cannot be faster than, and whether it fits: with dims that are still open, too.
#include <algorithm>
#include <limits>

#include "laconic/architecture/grid_cost.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/config/optimiser_section.hpp"
#include "laconic/plan/step_facts.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/grid_policy.hpp"

namespace laconic {

namespace {

constexpr double kRounding = 1 - 1e-9;   // the same sum in another order may come out larger
constexpr double kProgramBytes = 212e6;  // of a rank (bench/results/2026-11-16-rank-memory.md)

double total_work(const ModelSpec& spec, bool recomputes) {
  double work = 0;
  for (const BlockSpec& block : spec.blocks)
    work += block.multiply_adds * (recomputes && !block.out.empty() ? 4 : 3);
  return work;
}

// Policies that a class may still have: the chosen one, or all of the space.
std::vector<const PolicyOption*> open_policies(const PlanSpace& space, PolicyClass of, int chosen) {
  std::vector<const PolicyOption*> options;
  const auto& all = space.policies[static_cast<std::size_t>(of)];
  for (std::size_t i = 0; i < all.size(); ++i)
    if (chosen == kOpen || static_cast<std::size_t>(chosen) == i) options.push_back(&all[i]);
  return options;
}

}  // namespace

double StepModel::lower_bound(const Candidate& candidate) {
  if (candidate.at(PlanDim::arrangement) == kOpen) return 0;
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  // Computing: no rank can do more than its rate, and all cores no more than theirs. Every
  // microbatch has a pass, and there is one at least.
  const std::int64_t share = space_.base.train.batch / a.dp;
  const int size = candidate.at(PlanDim::microbatch);
  const std::int64_t passes =
      size == kOpen ? 1 : share / space_.microbatches[static_cast<std::size_t>(size)];
  const double local = static_cast<double>(share) +
                       (f.has_grid ? 0 : f.device.pass_samples * static_cast<double>(passes));
  const int recompute = candidate.at(PlanDim::recompute), chosen = candidate.at(PlanDim::precision);
  const bool recomputes =
      recompute != kOpen && space_.recomputes[static_cast<std::size_t>(recompute)];
  double compute = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
    if (chosen != kOpen && static_cast<std::size_t>(chosen) != i) continue;
    double rates = 0, slowest = std::numeric_limits<double>::infinity();
    for (int place = 0; place < a.pp; ++place)
      slowest = std::min(slowest, f.rate(space_, place, space_.precisions[i]));
    rates = slowest * a.pp * a.tp();
    double seconds = local * total_work(space_.spec, recomputes) / rates;
    if (f.cores > 0)
      seconds = std::max(seconds, local * a.dp * total_work(space_.spec, recomputes) /
                                      (f.core_rate(space_, space_.precisions[i]) * f.cores));
    compute = std::min(compute, seconds);
  }
  // Parameters of the fullest place are at least the mean's. What stages share is counted once.
  double elements = 0;
  for (const double count : f.elements()) elements += count;
  const double update = per_second(elements / a.pp, f.device.updates_per_second * f.core_share);
  return kRounding * (std::max({compute, sum_bound(candidate), boundary_bound(candidate),
                                grid_bound(candidate)}) +
                      update);
}

// The sums of the place that has most take at least what the mean does.
double StepModel::sum_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  if (a.dp == 1) return 0;
  const int chosen = candidate.at(PlanDim::dp_policy);
  const std::array<int, 2> key = {candidate.at(PlanDim::arrangement), chosen};
  if (const auto known = sum_bounds_.find(key); known != sum_bounds_.end()) return known->second;
  double least = std::numeric_limits<double>::infinity();
  for (const PolicyOption* option : open_policies(space_, PolicyClass::dp, chosen)) {
    const GradientPolicy policy = policy_of(option->applied);
    const double steps =
        option->applied.local.steps > 0 ? static_cast<double>(option->applied.local.steps) : 1;
    // All in one sum: payloads of several are never shorter together. Of a pipeline some ranks may
    // send what is left of a table apart, and some encode nothing.
    std::vector<SummedPart> parts;
    for (std::size_t p = 0; p < space_.spec.parameters.size(); ++p)
      if (a.pp == 1 || users_of(space_.spec, p).size() == 1)
        parts.push_back({&space_.spec.parameters[p], f.elements()[p]});
    const SumCost cost = sum_cost(parts, policy, a.dp, f.device, 0);
    const PatternCost& way =
        policy.algorithm == SumAlgorithm::ring ? f.patterns.ring : f.patterns.direct;
    least =
        std::min(least, (cost.up_bytes + cost.down_bytes) * way.seconds_per_byte / a.pp / steps);
  }
  return sum_bounds_[key] = least;
}

// All activations of a step as one message over the slowest boundary.
double StepModel::boundary_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  if (a.pp == 1) return 0;
  const int chosen = candidate.at(PlanDim::pp_policy);
  const std::array<int, 3> key = {candidate.at(PlanDim::arrangement), chosen,
                                  candidate.at(PlanDim::precision)};
  if (const auto known = boundary_bounds_.find(key); known != boundary_bounds_.end())
    return known->second;
  double least = std::numeric_limits<double>::infinity();
  for (const PolicyOption* option : open_policies(space_, PolicyClass::pp, chosen))
    for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
      if (candidate.at(PlanDim::precision) != kOpen &&
          static_cast<std::size_t>(candidate.at(PlanDim::precision)) != i)
        continue;
      RunConfig config = option->applied;
      config.run.precision = space_.precisions[i];
      config.mesh = {.pp = a.pp, .dp = a.dp};
      config.train = space_.base.train;
      config.train.microbatch = space_.base.train.batch / a.dp;
      const CodecSpec codec = activation_link(config).codec;
      double bytes = std::numeric_limits<double>::infinity();  // of the narrowest boundary
      for (std::size_t b = 0; b + 1 < space_.spec.blocks.size(); ++b) {
        double here = 0;
        for (const TensorSpec& tensor : boundary_of(config, space_.spec.blocks[b]))
          here += static_cast<double>(max_payload_bytes(codec, tensor));
        bytes = std::min(bytes, here);
      }
      const double seam = f.has_grid ? share_of_seam(f.grid()) : 1;
      least = std::min(least, seam * bytes * f.patterns.edge.seconds_per_byte);
    }
  return boundary_bounds_[key] = least;
}

// All samples of a step as one microbatch: what moves of weights then moves once.
double StepModel::grid_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  if (!f.has_grid) return 0;
  const int chosen = candidate.at(PlanDim::tp_policy), precision = candidate.at(PlanDim::precision);
  const std::array<int, 3> key = {candidate.at(PlanDim::arrangement), chosen, precision};
  if (const auto known = grid_bounds_.find(key); known != grid_bounds_.end()) return known->second;
  const GridLoad load{.samples = space_.base.train.batch / f.arrangement.dp,
                      .has_smoothing = space_.base.task.label_smoothing > 0};
  const std::vector<GridTraffic> traffic = grid_traffic(space_.spec, f.grid(), load);
  double least = std::numeric_limits<double>::infinity();
  for (const PolicyOption* option : open_policies(space_, PolicyClass::tp, chosen))
    for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
      if (precision != kOpen && static_cast<std::size_t>(precision) != i) continue;
      RunConfig config = option->applied;
      config.run.precision = space_.precisions[i];
      const GridBytes bytes_of_traffic = grid_bytes_of(config, space_.spec);
      double bytes = 0;
      for (const GridTraffic& one : traffic) bytes += bytes_of_traffic(one).bytes;
      // Of a pipeline the stage that has most has at least the mean.
      least = std::min(least, bytes * f.patterns.grid.seconds_per_byte / f.arrangement.pp);
    }
  return grid_bounds_[key] = least;
}

bool StepModel::may_fit(const Candidate& candidate) {
  if (candidate.at(PlanDim::arrangement) == kOpen) return true;
  const Facts& f = facts(candidate);
  const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(f.seats.front().group)];
  if (!group.device.is_gpu || group.device.memory_bytes <= 0) return true;
  double elements = 0;
  for (const double count : f.elements()) elements += count;
  const double copies = 2 + moment_count(space_.base.optimiser.kind, true);
  return 4 * copies * elements / f.arrangement.pp <= group.device.memory_bytes;
}

Fit StepModel::fit(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const RunConfig config = config_of(space_, candidate);
  const LinkFacts link{.bytes_per_second = per_second(1, f.patterns.edge.seconds_per_byte),
                       .latency = f.patterns.edge.latency};
  const PipelineDecisions decisions =
      decide_pipeline(config, space_.spec, link, [&] { return block_times(candidate, config); });
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
