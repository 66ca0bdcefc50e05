#include "laconic/plan/step_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "laconic/architecture/grid_memory.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/plan/step_facts.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/grid_policy.hpp"

namespace laconic {

namespace {

// The worse of two, property by property.
void worsen(HostDevice& device, const HostDevice& other) {
  const auto slower = [](double& a, double b) { a = a > 0 && b > 0 ? std::min(a, b) : a + b; };
  slower(device.updates_per_second, other.updates_per_second);
  slower(device.elements_per_second, other.elements_per_second);
  slower(device.copy_bytes_per_second, other.copy_bytes_per_second);
  slower(device.factors.product, other.factors.product);
  slower(device.factors.orthonormal, other.factors.orthonormal);
  slower(device.handled_bytes_per_second, other.handled_bytes_per_second);
  for (std::size_t p = 0; p < device.pass_samples.size(); ++p)
    device.pass_samples[p] = std::max(device.pass_samples[p], other.pass_samples[p]);
  device.message_seconds = std::max(device.message_seconds, other.message_seconds);
  device.call_seconds = std::max(device.call_seconds, other.call_seconds);
  device.is_gpu = device.is_gpu && other.is_gpu;
  for (const CodecRate& rate : other.codecs) {
    const auto known = std::ranges::find(device.codecs, rate.codec, &CodecRate::codec);
    if (known == device.codecs.end()) {
      device.codecs.push_back(rate);
    } else {
      slower(known->encode, rate.encode);
      slower(known->decode, rate.decode);
      slower(known->feedback, rate.feedback);
    }
  }
}

// Replicas of one place and part of the grid, by rank.
std::vector<std::vector<int>> replica_groups(const Arrangement& a) {
  std::vector<std::vector<int>> groups;
  for (int pp = 0; pp < a.pp; ++pp)
    for (int t = 0; t < a.tp(); ++t) {
      groups.emplace_back();
      for (int dp = 0; dp < a.dp; ++dp) groups.back().push_back((pp * a.dp + dp) * a.tp() + t);
    }
  return groups;
}

}  // namespace

StepModel::StepModel(const PlanSpace& space)
    : space_(space), completed_by_(space.spec.blocks.size()) {
  for (std::size_t p = 0; p < space.spec.parameters.size(); ++p) {
    first_users_.push_back(static_cast<std::size_t>(first_user(space.spec, p)));
    if (!space.spec.parameters[p].is_frozen) completed_by_[first_users_.back()].push_back(p);
  }
  users_.assign(space.spec.parameters.size(), 0);
  for (const BlockSpec& block : space.spec.blocks)
    for (const std::size_t p : block.uses) ++users_[p];
}
StepModel::~StepModel() = default;

double StepModel::Facts::rate(const PlanSpace& space, int place, RunPrecision precision) const {
  double slowest = std::numeric_limits<double>::infinity();
  for (const int g : groups[static_cast<std::size_t>(place)]) {
    const HostGroup& group = space.hosts.groups[static_cast<std::size_t>(g)];
    const double core = group.device.multiply_adds_per_second[static_cast<std::size_t>(precision)];
    // In a pipeline some ranks wait while others compute; at least those of one place do it
    // together.
    const double together = arrangement.dp * arrangement.tp();
    const double share = group.cores == 0      ? 1
                         : arrangement.pp == 1 ? core_share
                                               : std::min(1.0, group.cores / together);
    slowest = std::min(slowest, core * share);
  }
  return slowest;
}

double StepModel::Facts::core_rate(const PlanSpace& space, RunPrecision precision) const {
  const HostGroup& group = space.hosts.groups[static_cast<std::size_t>(seats.front().group)];
  return group.device.multiply_adds_per_second[static_cast<std::size_t>(precision)];
}

const StepModel::Facts& StepModel::facts(const Candidate& candidate) {
  const int number = candidate.at(PlanDim::arrangement);
  std::unique_ptr<Facts>& known = facts_[number];
  if (known) return *known;
  const Arrangement& a = arrangement_of(space_, candidate);
  known = std::make_unique<Facts>();
  Facts& f = *known;
  f.arrangement = a;
  for (const int seat : seating_of(space_, a))
    f.seats.push_back(space_.seats[static_cast<std::size_t>(seat)]);
  std::set<int> all;
  for (int pp = 0; pp < a.pp; ++pp) {
    std::set<int> here;
    for (int r = 0; r < a.dp * a.tp(); ++r)
      here.insert(f.seats[static_cast<std::size_t>(pp * a.dp * a.tp() + r)].group);
    f.groups.emplace_back(here.begin(), here.end());
    all.insert(here.begin(), here.end());
  }
  bool is_first = true;
  for (const int g : all) {
    const HostGroup& group = space_.hosts.groups[static_cast<std::size_t>(g)];
    if (std::exchange(is_first, false))
      f.device = group.device;
    else
      worsen(f.device, group.device);
    f.cores += group.cores;
  }
  if (f.cores > 0) f.core_share = std::min(1.0, f.cores / a.ranks());
  f.has_grid = a.tp() > 1;
  f.of_grid = &grid_facts(a);
  f.patterns = patterns(a);
  return f;
}

const StepModel::GridFacts& StepModel::grid_facts(const Arrangement& a) {
  std::unique_ptr<GridFacts>& known = grid_facts_[{a.method, a.grid}];
  if (known) return *known;
  known = std::make_unique<GridFacts>();
  known->number = static_cast<int>(grid_facts_.size());
  RunConfig config = space_.base;
  config.mesh.tp = fmt::format("{}", fmt::join(a.grid, ","));
  config.tensor.method = a.method;
  known->plan = grid_plan_of(config, space_.family);
  for (const ParameterSpec& p : space_.spec.parameters) {
    known->elements.push_back(elements_on_a_rank(known->plan, p));
    if (!p.is_frozen) known->trained_elements += known->elements.back();
  }
  return *known;
}

bool StepModel::are_alike() const {
  return space_.hosts.groups.size() == 1 && space_.hosts.groups[0].ranks_per_host == 1;
}

// Where all ranks are alike, a link of any of them says it of all.
StepModel::Patterns StepModel::patterns(const Arrangement& a) {
  const auto [place, is_new] =
      patterns_.try_emplace({a.pp, a.dp, a.outer, a.tp(), a.first_seat}, Patterns());
  Patterns& p = place->second;
  if (!is_new) return p;
  const bool is_one_enough = are_alike();
  std::vector<Seat> seats;
  for (const int seat : seating_of(space_, a))
    seats.push_back(space_.seats[static_cast<std::size_t>(seat)]);
  const auto cost_of = [&](const auto& add) {
    LinkLoad load(space_.hosts, seats);
    add(load);
    return load.cost();
  };
  const int width = a.dp * a.tp();
  const double n = a.dp;
  // Every boundary by itself: neighbours are not all busy at once.
  for (int stage = 0; stage + 1 < (is_one_enough ? std::min(a.pp, 2) : a.pp); ++stage) {
    const PatternCost edge = cost_of([&](LinkLoad& load) {
      for (int r = 0; r < (is_one_enough ? 1 : width); ++r)
        load.add_flow(stage * width + r, (stage + 1) * width + r, 1);
    });
    const double latency = std::max(p.edge.latency, edge.latency);
    if (stage == 0 || edge.seconds_per_byte > p.edge.seconds_per_byte) p.edge = edge;
    p.edge.latency = latency;
  }
  std::vector<std::vector<int>> replicas = replica_groups(a);
  if (is_one_enough) replicas.resize(1);
  p.ring = cost_of([&](LinkLoad& load) {
    for (const std::vector<int>& ranks : replicas) load.add_ring(ranks, (n - 1) / n);
  });
  p.direct = cost_of([&](LinkLoad& load) {
    for (const std::vector<int>& ranks : replicas) load.add_exchange(ranks, 1 / n);
  });
  // First and last stage, with all their replicas.
  p.tied = cost_of([&](LinkLoad& load) {
    for (int t = 0; t < (is_one_enough ? 1 : a.tp()) && a.pp > 1; ++t) {
      std::vector<int> ranks;
      for (const int pp : {0, a.pp - 1})
        for (int dp = 0; dp < a.dp; ++dp) ranks.push_back((pp * a.dp + dp) * a.tp() + t);
      load.add_exchange(ranks, 1 / (2 * n));
    }
  });
  p.grid = cost_of([&](LinkLoad& load) {
    for (int first = 0; first < (is_one_enough ? 1 : a.ranks()) && a.tp() > 1; first += a.tp()) {
      std::vector<int> ranks;
      for (int t = 0; t < a.tp(); ++t) ranks.push_back(first + t);
      load.add_exchange(ranks, 1.0 / (a.tp() - 1));
    }
  });
  p.agreement = cost_of([&](LinkLoad& load) {
    std::vector<int> ranks(is_one_enough ? std::min<std::size_t>(seats.size(), 2) : seats.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
    load.add_exchange(ranks, 0);
  });
  return p;
}

const std::vector<BlockTimes>& StepModel::block_times(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const auto chosen = [&](PlanDim dim) { return static_cast<std::size_t>(candidate.at(dim)); };
  const RunPrecision precision = space_.precisions[chosen(PlanDim::precision)];
  double rate = std::numeric_limits<double>::infinity();
  for (int place = 0; place < f.arrangement.pp; ++place)
    rate = std::min(rate, f.rate(space_, place, precision));
  const bool is_same_everywhere = are_alike() && f.cores == 0;
  std::vector<BlockTimes>& times =
      times_[{f.of_grid->number, candidate.at(PlanDim::precision), candidate.at(PlanDim::recompute),
              candidate.at(PlanDim::microbatch), candidate.at(PlanDim::tp_policy),
              is_same_everywhere ? 0 : candidate.at(PlanDim::arrangement)}];
  if (!times.empty()) return times;
  const auto samples = static_cast<double>(space_.microbatches[chosen(PlanDim::microbatch)]);
  const bool recomputes = space_.recomputes[chosen(PlanDim::recompute)];
  const double elements = f.device.elements_per_second * f.core_share;
  if (!f.has_grid) {
    for (std::size_t b = 0; b < space_.spec.blocks.size(); ++b) {
      const BlockSpec& block = space_.spec.blocks[b];
      const double normed =
          elements > 0
              ? grid_normed_elements(space_.spec, {}, b, static_cast<std::int64_t>(samples)) /
                    elements
              : 0;
      const double forward =
          (samples + f.device.pass_samples[static_cast<std::size_t>(precision)]) *
              block.multiply_adds / rate +
          normed / 3;
      const bool again = recomputes && !block.out.empty();
      times.push_back({.forward = forward, .backward = (again ? 3 : 2) * forward});
    }
    return times;
  }
  const RunConfig config = config_of(space_, candidate);
  const double spb = f.patterns.grid.seconds_per_byte, handled = f.device.handled_bytes_per_second;
  const bool is_gpu = f.device.is_gpu;
  GridMachine machine{.flops_per_second = 2 * rate,
                      .elements_per_second = elements,
                      .bytes_per_second = spb > 0 ? 1 / spb : 0,
                      .latency = f.patterns.grid.latency};
  if (is_gpu) {  // the host's processor handles messages while the GPU computes
    const double link = machine.bytes_per_second;
    machine.bytes_per_second = link > 0 && handled > 0 ? std::min(link, handled) : link + handled;
    machine.latency += f.device.message_seconds;
  } else {
    machine.handled_bytes_per_second = handled * f.core_share;
    machine.message_seconds = f.device.message_seconds / f.core_share;
    machine.call_seconds = f.device.call_seconds / f.core_share;
  }
  for (const GridBlockTime& block : grid_times(
           space_.spec, f.grid(),
           {.samples = config.microbatch_size(), .has_smoothing = config.task.label_smoothing > 0},
           machine, grid_bytes_of(config, space_.spec),
           {.recomputes = recomputes, .prefetches = config.tensor.prefetch}))
    times.push_back({.forward = block.forward.total(), .backward = block.backward.total()});
  return times;
}

StepModel::Step StepModel::prepare(const Candidate& candidate) {
  RunConfig config = config_of(space_, candidate);
  const GradientPolicy sums = policy_of(config);
  const SumRhythm rhythm = rhythm_of(config);
  const auto rows = static_cast<std::size_t>(candidate.at(PlanDim::rows_policy));
  return {candidate, std::move(config),         facts(candidate), block_times(candidate), sums,
          rhythm,    row_costs(candidate, rows)};
}

const std::vector<RowCost>& StepModel::row_costs(const Candidate& candidate, std::size_t policy) {
  const int precision = std::max(candidate.at(PlanDim::precision), 0);
  const auto [place, is_new] = row_costs_.try_emplace(
      {candidate.at(PlanDim::arrangement), static_cast<int>(policy), precision});
  const Arrangement& a = arrangement_of(space_, candidate);
  const auto loads = space_.row_loads.find(a.dp);
  if (!is_new || loads == space_.row_loads.end()) return place->second;
  RunConfig config = space_.policies[static_cast<std::size_t>(PolicyClass::rows)][policy].applied;
  if (!may_move_rows(config)) return place->second;
  config.mesh = {.pp = a.pp, .dp = a.dp};
  config.run.precision = space_.precisions[static_cast<std::size_t>(precision)];
  return place->second = laconic::row_costs(config, space_.spec, loads->second, space_.hosts,
                                            facts(candidate).device);
}

double StepModel::seconds(const Candidate& candidate) {
  const Step step = prepare(candidate);
  return step.facts.arrangement.pp == 1 ? alone_seconds(step, nullptr)
                                        : pipeline_seconds(step, nullptr);
}

StepTime StepModel::parts(const Candidate& candidate) {
  const Step step = prepare(candidate);
  StepTime parts;
  parts.seconds =
      step.facts.arrangement.pp == 1 ? alone_seconds(step, &parts) : pipeline_seconds(step, &parts);
  return parts;
}

Problems StepModel::problems(const Candidate& candidate) const {
  const RunConfig config = config_of(space_, candidate);
  Problems problems = check(config);
  if (!problems.empty()) return problems;
  append(problems, check_parallel(config));
  append(problems, check_pipeline(config));
  return problems;
}

}  // namespace laconic
