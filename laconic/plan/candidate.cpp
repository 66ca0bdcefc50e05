#include "laconic/plan/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/plan/row_option.hpp"
#include "laconic/policy/grid_estimate.hpp"

namespace laconic {

namespace {

constexpr int kMostMicrobatches = 128;  // of a pipeline: more change little, and take time to plan
constexpr int kMostGridRanks = 64;
constexpr std::int64_t kFewLayers = 2;

std::size_t index(PolicyClass of) {
  return static_cast<std::size_t>(of);
}

// How many ranks may take part: all, and fewer, since a slow link may cost more than a rank is
// worth.
std::vector<int> sizes_up_to(int most) {
  std::vector<int> sizes;
  for (int n = 1; n <= most; ++n) {
    int odd = n;
    while (odd % 2 == 0) odd /= 2;
    if (n == most || most <= 16 || odd == 1 || odd == 3) sizes.push_back(n);
  }
  return sizes;
}

// The same model with few layers: layers of one kind are cut alike, so one that can be cut says it
// of all. Of boundaries that are projected one says it, too.
Family with_few_layers(Family family) {
  std::visit([](auto& shape) { shape.layers = std::min(shape.layers, kFewLayers); }, family);
  if (auto* shape = std::get_if<Seq2SeqShape>(&family))
    shape->decoder_layers = std::min(shape->decoder_layers, kFewLayers);
  Projection projection = projection_of(family);
  if (projection.is_empty()) return family;
  projection.after = {1};
  return with_projection(family, projection);
}

// And what is asked of it: which layers encode is nothing to how they are cut.
bool can_cut(RunConfig config, const Family& few) {
  config.tp_activation.layers = config.tp_gradient.layers = config.tp_weight.layers = kAllPlaces;
  return check_grid_alone(config, few).empty();
}

// Grids of so many ranks that can cut the model.
std::vector<std::pair<TensorMethod, std::array<int, 3>>> grids_of(const PlanSpace& space,
                                                                  int ranks) {
  if (ranks == 1) return {{TensorMethod::three_d, {1, 1, 1}}};
  const Family few = with_few_layers(space.family);
  RunConfig config = space.base;
  config.mesh.dp = config.mesh.pp = 1;
  config.train.microbatch = 0;
  std::vector<std::pair<TensorMethod, std::array<int, 3>>> grids;
  for (const auto& [method, grid] : grids_of_ranks(ranks)) {
    config.tensor.method = method;
    config.mesh.tp = fmt::format("{}", fmt::join(grid, ","));
    if (can_cut(config, few)) grids.emplace_back(method, grid);
  }
  std::ranges::sort(grids);
  return grids;
}

bool divides(std::int64_t number, std::int64_t of) {
  return number >= 1 && of % number == 0;
}

void add_meshes(PlanSpace& space, int ranks, int first_seat,
                std::vector<std::vector<std::pair<TensorMethod, std::array<int, 3>>>>& grids) {
  const auto blocks = static_cast<int>(block_count(space.spec));
  // Where every rank has a host of one kind it does not matter who sits where.
  const bool has_places = space.hosts.groups.size() > 1 || space.hosts.groups[0].ranks_per_host > 1;
  for (int tp = 1; tp <= std::min(ranks, kMostGridRanks); ++tp) {
    if (!divides(tp, ranks)) continue;
    for (int pp = 1; pp <= std::min(ranks / tp, blocks); ++pp) {
      const int dp = ranks / tp / pp;
      if (!divides(pp, ranks / tp) || !divides(dp, space.base.train.batch)) continue;
      auto& known = grids[static_cast<std::size_t>(tp)];
      if (known.empty()) known = grids_of(space, tp);
      for (const auto& [method, grid] : known)
        for (const Axis outer : {Axis::pp, Axis::dp}) {
          if (outer == Axis::dp && (pp == 1 || dp == 1 || !has_places)) continue;
          space.arrangements.push_back({.pp = pp,
                                        .dp = dp,
                                        .method = method,
                                        .grid = grid,
                                        .outer = outer,
                                        .first_seat = first_seat});
        }
    }
  }
}

// Whether a group is like one before it, but for its name.
bool is_repeated(const Hosts& hosts, std::size_t group) {
  for (std::size_t g = 0; g < group; ++g) {
    HostGroup like = hosts.groups[g];
    like.name = hosts.groups[group].name;
    if (like == hosts.groups[group]) return true;
  }
  return false;
}

// On all hosts together, and on each kind of group alone.
void add_arrangements(PlanSpace& space) {
  const int all = static_cast<int>(space.seats.size());
  std::vector<std::vector<std::pair<TensorMethod, std::array<int, 3>>>> grids(
      static_cast<std::size_t>(std::min(all, kMostGridRanks)) + 1);
  for (const int ranks : sizes_up_to(all)) add_meshes(space, ranks, 0, grids);
  int first = space.hosts.groups.front().ranks();
  for (std::size_t g = 1; g < space.hosts.groups.size(); ++g) {
    const int most = is_repeated(space.hosts, g) ? 0 : space.hosts.groups[g].ranks();
    for (const int ranks : sizes_up_to(most)) add_meshes(space, ranks, first, grids);
    first += space.hosts.groups[g].ranks();
  }
}

void add_policies(const PlanRequest& request, PlanSpace& space) {
  for (const Named<PolicyClass>& one : kPolicyClassNames) {
    const PolicyChoice exact = exact_policy(one.value);
    space.policies[index(one.value)].push_back({exact, with_policy(request.base, exact)});
  }
  for (const PolicyChoice& policy : request.policies) {
    const auto& effect = policy.effect(space.is_trained);
    if (!effect && !request.with_unproven) continue;
    if (effect && effect->loss > request.loss_budget) continue;
    space.policies[index(policy.of)].push_back({policy, with_policy(request.base, policy)});
  }
  add_row_options(space);
}

// GPUs compute fastest in bfloat16; what that does to losses has not been measured.
std::vector<RunPrecision> precisions_of(const PlanRequest& request) {
  std::vector<RunPrecision> precisions = {request.base.run.precision};
  const bool has_gpus = std::ranges::all_of(
      request.hosts.groups, [](const HostGroup& group) { return group.device.is_gpu; });
  if (request.with_unproven && has_gpus && precisions[0] != RunPrecision::bfloat16)
    precisions.push_back(RunPrecision::bfloat16);
  return precisions;
}

std::vector<int> all_of(std::size_t count) {
  std::vector<int> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>(i);
  return numbers;
}

const PolicyOption& policy_at(const PlanSpace& space, const Candidate& candidate, PolicyClass of) {
  const int number = candidate.at(kPolicyDims[index(of)]);
  return space.policies[index(of)][static_cast<std::size_t>(std::max(number, 0))];
}

// Those within the budget, if there is anything to encode at all.
std::vector<int> policy_options(const PlanSpace& space, const Candidate& candidate,
                                PolicyClass of) {
  if (of != PolicyClass::rows && !uses(space, candidate, of)) return {0};
  const std::vector<int> all = of == PolicyClass::rows ? row_options_beside(space, candidate)
                                                       : all_of(space.policies[index(of)].size());
  std::vector<int> numbers;
  for (const int i : all) {
    Candidate with = candidate;
    with.at(kPolicyDims[index(of)]) = i;
    if (loss_of(space, with).loss <= space.loss_budget) numbers.push_back(i);
  }
  return numbers;
}

// A grid cuts samples, too: which microbatches, once for each grid.
void add_cuttable(PlanSpace& space) {
  const Family few = with_few_layers(space.family);
  std::map<std::pair<TensorMethod, std::array<int, 3>>, std::vector<bool>> known;
  for (const Arrangement& a : space.arrangements) {
    std::vector<bool>& can = known[{a.method, a.grid}];
    for (std::size_t i = can.size(); i < space.microbatches.size(); ++i) {
      RunConfig config = space.base;
      config.mesh = {.tp = fmt::format("{}", fmt::join(a.grid, ","))};
      config.tensor.method = a.method;
      config.train.microbatch = space.microbatches[i];
      can.push_back(a.tp() == 1 || can_cut(config, few));
    }
    space.cuttable.push_back(can);
  }
}

// Where nothing depends on it but memory, all are as fast, and the largest that fits is told.
std::vector<int> microbatch_options(const PlanSpace& space, const Candidate& candidate) {
  const Arrangement& a = arrangement_of(space, candidate);
  const std::int64_t local = space.base.train.batch / a.dp;
  std::vector<int> numbers;
  for (const int i : all_of(space.microbatches.size())) {
    const std::int64_t size = space.microbatches[static_cast<std::size_t>(i)];
    if (divides(size, local) && (a.pp == 1 || local / size <= kMostMicrobatches) &&
        space.cuttable[static_cast<std::size_t>(candidate.at(PlanDim::arrangement))]
                      [static_cast<std::size_t>(i)])
      numbers.push_back(i);
  }
  return numbers;
}

std::vector<int> schedule_options(const PlanSpace& space, const Candidate& candidate) {
  const Arrangement& a = arrangement_of(space, candidate);
  if (a.pp == 1) return {0};
  const std::int64_t size =
      space.microbatches[static_cast<std::size_t>(candidate.at(PlanDim::microbatch))];
  std::vector<int> numbers;
  for (const int i : all_of(space.schedules.size())) {
    const ScheduleChoice& choice = space.schedules[static_cast<std::size_t>(i)];
    const PipelineShape shape{
        .ranks = a.pp,
        .stages = a.pp * choice.chunks,
        .microbatches = static_cast<int>(space.base.train.batch / a.dp / size)};
    if (shape.stages <= block_count(space.spec) && check(choice.kind, shape).empty())
      numbers.push_back(i);
  }
  return numbers;
}

}  // namespace

std::size_t depth_of(const Candidate& candidate) {
  return static_cast<std::size_t>(std::ranges::find(candidate.choice, kOpen) -
                                  candidate.choice.begin());
}

Problems check(const PlanRequest& request) {
  Problems problems;
  if (!(request.loss_budget >= 0 && request.loss_budget <= 100))
    problems.push_back(
        {"--loss-budget", fmt::format("{} % is not in 0 to 100", request.loss_budget)});
  const RunPrecision precision = request.base.run.precision;
  for (const HostGroup& group : request.hosts.groups)
    if (multiply_adds_of(group, precision) <= 0)
      problems.push_back(
          {"hosts",
           fmt::format("group '{}': how fast device '{}' computes in {} is not known", group.name,
                       group.device.name, name_in(kRunPrecisionNames, precision))});
  const bool is_on_gpus = std::ranges::all_of(
      request.hosts.groups, [](const HostGroup& group) { return group.device.is_gpu; });
  if (request.base.embedding_rows.optimiser != RowsOptimiser::same && is_on_gpus)
    problems.push_back({"embedding.rows.optimiser",
                        "rows have an algorithm of their own, and what they cost between a GPU and "
                        "its host is not "
                        "predicted: all hosts have GPUs"});
  return problems;
}

PlanSpace space_of(const PlanRequest& request) {
  PlanSpace space{.base = request.base,
                  .family = family_of(request.base, {}),
                  .spec = {},
                  .hosts = request.hosts,
                  .seats = seats_of(request.hosts),
                  .arrangements = {},
                  .cuttable = {},
                  .precisions = precisions_of(request),
                  .recomputes = {false, true},
                  .microbatches = {},
                  .schedules = {{ScheduleKind::one_f_one_b, 1},
                                {ScheduleKind::gpipe, 1},
                                {ScheduleKind::zero_bubble, 1},
                                {ScheduleKind::zb_v, 2},
                                {ScheduleKind::interleaved, 2}},
                  .policies = {},
                  .refused = {},
                  .row_options = {},
                  .row_loads = {},
                  .loss_budget = request.loss_budget,
                  .with_unproven = request.with_unproven,
                  .is_trained = request.is_trained};
  space.spec = model_spec(space.family, context_of(space.family));
  for (std::int64_t size = space.base.train.batch; size >= 1; --size)
    if (divides(size, space.base.train.batch)) space.microbatches.push_back(size);
  add_arrangements(space);
  add_cuttable(space);
  add_policies(request, space);
  return space;
}

bool uses(const PlanSpace& space, const Candidate& candidate, PolicyClass of) {
  const Arrangement& a = arrangement_of(space, candidate);
  const auto number = static_cast<std::size_t>(candidate.at(PlanDim::arrangement));
  switch (of) {
    case PolicyClass::pp: return a.pp > 1;
    case PolicyClass::dp: return a.dp > 1;
    case PolicyClass::tp: return a.tp() > 1;
    case PolicyClass::rows: return space.row_options[number].size() > 1;
  }
  return false;
}

const Arrangement& arrangement_of(const PlanSpace& space, const Candidate& candidate) {
  return space.arrangements[static_cast<std::size_t>(candidate.at(PlanDim::arrangement))];
}

std::vector<int> options(const PlanSpace& space, const Candidate& candidate) {
  switch (static_cast<PlanDim>(depth_of(candidate))) {
    case PlanDim::arrangement: {
      std::vector<int> numbers = all_of(space.arrangements.size());
      std::erase_if(numbers,
                    [&](int i) { return space.row_options[static_cast<std::size_t>(i)].empty(); });
      return numbers;
    }
    case PlanDim::precision: return all_of(space.precisions.size());
    case PlanDim::recompute: return all_of(space.recomputes.size());
    case PlanDim::dp_policy: return policy_options(space, candidate, PolicyClass::dp);
    case PlanDim::pp_policy: return policy_options(space, candidate, PolicyClass::pp);
    case PlanDim::tp_policy: return policy_options(space, candidate, PolicyClass::tp);
    case PlanDim::rows_policy: return policy_options(space, candidate, PolicyClass::rows);
    case PlanDim::microbatch: return microbatch_options(space, candidate);
    case PlanDim::schedule: return schedule_options(space, candidate);
  }
  return {};
}

namespace {

void add_candidates(const PlanSpace& space, const Candidate& from, std::vector<Candidate>& all) {
  const std::size_t depth = depth_of(from);
  if (depth == kPlanDims) return all.push_back(from);
  for (const int option : options(space, from)) {
    Candidate next = from;
    next.choice[depth] = option;
    add_candidates(space, next, all);
  }
}

}  // namespace

std::vector<Candidate> candidates(const PlanSpace& space) {
  std::vector<Candidate> all;
  add_candidates(space, {}, all);
  return all;
}

const HostGroup& first_group(const PlanSpace& space, const Arrangement& a) {
  const Seat& seat = space.seats[static_cast<std::size_t>(a.first_seat)];
  return space.hosts.groups[static_cast<std::size_t>(seat.group)];
}

RunConfig config_of(const PlanSpace& space, const Candidate& candidate) {
  RunConfig config = space.base;
  for (const Named<PolicyClass>& one : kPolicyClassNames)
    copy_policy(one.value, policy_at(space, candidate, one.value).applied, config);
  const Arrangement& a = arrangement_of(space, candidate);
  config.mesh = {.pp = a.pp, .dp = a.dp, .tp = fmt::format("{}", fmt::join(a.grid, ","))};
  if (a.tp() == 1) config.mesh.tp = "1";
  config.tensor.method = a.method;
  config.pipeline = {};
  const HostGroup& group = first_group(space, a);
  config.run.device = {.kind = group.device.is_gpu ? DeviceKind::cuda : DeviceKind::cpu};
  if (group.cores > 0) config.run.threads = 1;
  const auto chosen = [&](PlanDim dim) { return static_cast<std::size_t>(candidate.at(dim)); };
  if (candidate.at(PlanDim::precision) != kOpen)
    config.run.precision = space.precisions[chosen(PlanDim::precision)];
  if (candidate.at(PlanDim::recompute) != kOpen)
    config.model.recompute = space.recomputes[chosen(PlanDim::recompute)];
  if (candidate.at(PlanDim::microbatch) != kOpen)
    config.train.microbatch = space.microbatches[chosen(PlanDim::microbatch)];
  if (candidate.at(PlanDim::schedule) != kOpen && a.pp > 1) {
    const ScheduleChoice& schedule = space.schedules[chosen(PlanDim::schedule)];
    config.pipeline.schedule = std::string(name_of(schedule.kind));
    config.pipeline.chunks = schedule.chunks;
  }
  return config;
}

std::vector<int> seating_of(const PlanSpace& space, const Arrangement& a) {
  const int tp = a.tp();
  std::vector<int> seats;
  for (int pp = 0; pp < a.pp; ++pp)
    for (int dp = 0; dp < a.dp; ++dp)
      for (int t = 0; t < tp; ++t) {
        const int block = a.outer == Axis::dp ? dp * a.pp + pp : pp * a.dp + dp;
        seats.push_back(a.first_seat + block * tp + t);
      }
  static_cast<void>(space);
  return seats;
}

LossEffect loss_of(const PlanSpace& space, const Candidate& candidate) {
  LossEffect sum;
  for (const Named<PolicyClass>& one : kPolicyClassNames) {
    const auto& effect = policy_at(space, candidate, one.value).choice.effect(space.is_trained);
    if (!effect) continue;
    sum.loss += std::max(0.0, effect->loss);
    sum.least += std::max(0.0, effect->least);
    sum.most += std::max(0.0, effect->most);
    sum.seeds = std::max(sum.seeds, effect->seeds);
  }
  return sum;
}

bool is_proven(const PlanSpace& space, const Candidate& candidate) {
  for (const Named<PolicyClass>& one : kPolicyClassNames)
    if (!policy_at(space, candidate, one.value).choice.effect(space.is_trained)) return false;
  return candidate.at(PlanDim::precision) <= 0;
}

}  // namespace laconic
