// What a candidate cannot be faster than, with dims that are still open, too.
//
// A rank r of a pipeline, and a step of m microbatches whose stages take f and b:
//
//   begins   when the first activation has come through all stages before it
//   is busy  for m (f + b) of its stages
//   ends     where backward is not cut in halves: not before the last rank has ended, and its last
//            gradient has come back through all stages between; in zero_bubble the same with the
//            halves that others wait for; in zb_v nothing is known but begin and busy
//
//   sends    each of its messages through its one outlet, which begins when its first stage has
//            been forward; where backward goes back rank by rank its last message is the last
//            gradient, which has to come back through all stages before it
//
// Sums follow the end of a rank, and share its outlet with its messages. No rank is later than the
// last, so the mean over ranks of ends and sums is a bound, and sums need not be known rank by
// rank.
#include <algorithm>
#include <limits>
#include <numeric>

#include "laconic/architecture/grid_cost.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/plan/row_option.hpp"
#include "laconic/plan/step_facts.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/grid_policy.hpp"
#include "laconic/policy/planned_codec.hpp"

namespace laconic {

namespace {

constexpr double kRounding = 1 - 1e-9;  // the same sum in another order may come out larger

struct StageTimes {
  double forward = 0, backward = 0;
};

// Of the last rank; and means over ranks: of their first stages, whose sums are those of a rank, of
// their outlets, and of how long these are busy.
struct LeastEnds {
  double last = 0, of_stages = 0, of_outlets = 0;
  double outlet = 0;
};

// All messages of a kind over a boundary, in seconds of an outlet; and a hop, which is one of them
// that nothing delays.
struct MessageTimes {
  double all = 0, hop = 0;
};

// `stages` in order.
LeastEnds least_ends(const ScheduleChoice& schedule, int ranks, double microbatches,
                     const std::vector<StageTimes>& stages, const MessageTimes& activation,
                     const MessageTimes& gradient, double latency) {
  const auto count = static_cast<std::size_t>(ranks), last = count - 1;
  std::vector<double> busy(count, 0), begin(count, 0), back(count, 0), outlet(count, 0);
  const bool is_v = schedule.kind == ScheduleKind::zb_v;
  const auto rank_of = [&](std::size_t stage) {
    return is_v && stage >= count ? stages.size() - 1 - stage : stage % count;
  };
  for (std::size_t s = 0; s < stages.size(); ++s) {
    busy[rank_of(s)] += microbatches * (stages[s].forward + stages[s].backward);
    if (s + 1 == stages.size() || rank_of(s) == rank_of(s + 1)) continue;
    outlet[rank_of(s)] += activation.all;
    outlet[rank_of(s + 1)] += gradient.all;
  }
  const bool is_halved = schedule.kind == ScheduleKind::zero_bubble;
  const double share = is_halved ? 0.5 : 1;  // of backward, that the stage before waits for
  for (std::size_t r = 1; r < count; ++r)
    begin[r] = begin[r - 1] + stages[r - 1].forward + activation.hop;
  for (std::size_t r = last; r-- > 0;)
    back[r] = back[r + 1] + share * stages[r].backward + gradient.hop;
  const double chain =
      begin[last] + (is_halved
                         ? microbatches * (stages[last].forward + share * stages[last].backward)
                         : busy[last]);
  LeastEnds ends;
  for (std::size_t r = 0; r < count; ++r) {
    double end = begin[r] + busy[r];
    if (!is_v) end = std::max(end, chain + back[r]);
    ends.last = std::max(ends.last, end);
    // In a V halves of the second stage may follow the first one.
    const double after = is_v ? microbatches * stages[stages.size() - 1 - r].backward / 2 : 0;
    ends.of_stages += (end - after) / ranks;
    const double sent = begin[r] + stages[r].forward + outlet[r];
    const double until_first = is_v || r == 0 ? 0 : back[0] - back[r] - gradient.hop + latency;
    ends.last = std::max(ends.last, outlet[r] > 0 ? sent + until_first : 0);
    ends.of_outlets += (outlet[r] > 0 ? sent : 0) / ranks;
    ends.outlet += outlet[r] / ranks;
  }
  return ends;
}

}  // namespace

double StepModel::lower_bound(const Candidate& candidate) {
  if (candidate.at(PlanDim::arrangement) == kOpen) return 0;
  return kRounding * (arrangement_of(space_, candidate).pp == 1 ? alone_bound(candidate)
                                                                : pipeline_bound(candidate));
}

// Of every policy of rows that the candidate may still have.
std::vector<StepModel::LeastRows> StepModel::least_rows(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const double places = f.arrangement.pp, rate = f.device.updates_per_second * f.core_share;
  std::vector<LeastRows> least;
  for (const int i :
       space_.row_options[static_cast<std::size_t>(candidate.at(PlanDim::arrangement))]) {
    const auto policy = static_cast<std::size_t>(i);
    if (!is_open_to(candidate.at(PlanDim::rows_policy), policy)) continue;
    const RunConfig& applied =
        space_.policies[static_cast<std::size_t>(PolicyClass::rows)][policy].applied;
    // Parameters of the fullest place are at least the mean's. What stages share is counted once.
    double bytes = 0, elements = f.of_grid->trained_elements;
    const std::vector<RowCost>& rows = row_costs(candidate, policy);
    for (const RowCost& row : rows) {
      bytes += row.prior.up_bytes;
      elements -= f.elements()[row.parameter];
    }
    least.push_back(
        {.has_rows = !rows.empty(),
         .updates_by_block = applied.train.update == UpdateBy::block && f.arrangement.dp > 1,
         .wire = bytes * f.patterns.direct.seconds_per_byte,
         .update = per_second(std::max(0.0, elements) / places, rate)});
  }
  return least;
}

// With a microbatch the very times of blocks; else all samples as one, where grids are for free.
StepModel::LeastWork StepModel::least_work(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  const std::int64_t share = space_.base.train.batch / a.dp;
  const int size = candidate.at(PlanDim::microbatch), recompute = candidate.at(PlanDim::recompute);
  LeastWork work;
  if (size != kOpen) {
    work.passes = static_cast<double>(share / space_.microbatches[static_cast<std::size_t>(size)]);
    for (const BlockTimes& times : block_times(candidate)) {
      work.forward += work.passes * times.forward;
      work.backward += work.passes * times.backward;
    }
    return work;
  }
  double rate = 0, pass_samples = kEver;  // of the fastest precision, and the fewest of any
  for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
    if (!is_open_to(candidate.at(PlanDim::precision), i)) continue;
    double slowest = kEver;
    for (int place = 0; place < a.pp; ++place)
      slowest = std::min(slowest, f.rate(space_, place, space_.precisions[i]));
    rate = std::max(rate, slowest);
    pass_samples = std::min(pass_samples,
                            f.device.pass_samples[static_cast<std::size_t>(space_.precisions[i])]);
  }
  const double samples = static_cast<double>(share) + (f.has_grid ? 0 : pass_samples);
  const bool recomputes =
      recompute != kOpen && space_.recomputes[static_cast<std::size_t>(recompute)];
  for (const BlockSpec& block : space_.spec.blocks) {
    const double forward = samples * block.multiply_adds / rate / a.tp();
    work.forward += forward;
    work.backward += (recomputes && !block.out.empty() ? 3 : 2) * forward;
  }
  return work;
}

double StepModel::alone_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const LeastWork work = least_work(candidate);
  double computing = work.total();
  if (candidate.at(PlanDim::microbatch) == kOpen)
    computing = std::max(computing, grid_bound(candidate));
  // Sums begin in the last backward, unless they wait for its end; block by block the next step
  // begins meanwhile, and is updated in its forward.
  const double before = work.total() - work.backward / work.passes;
  double least = kEver;
  for (const LeastRows& rows : least_rows(candidate)) {
    if (f.arrangement.dp == 1) {
      least = std::min(least, computing + rows.update);
      continue;
    }
    const std::vector<LeastSum>& sums = least_sums(f, rows.has_rows);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!is_open_to(candidate.at(PlanDim::dp_policy), i)) continue;
      if (rows.has_rows && !sums[i].may_have_rows) continue;
      const PatternCost& way = sums[i].is_ring ? f.patterns.ring : f.patterns.direct;
      const double wire = sums[i].bytes * way.seconds_per_byte + rows.wire;
      const double end = rows.updates_by_block        ? std::max(computing, wire - rows.update)
                         : sums[i].rhythm.in_backward ? std::max(computing, before + wire)
                                                      : with_sums(sums[i].rhythm, computing, wire);
      least = std::min(least, end + rows.update);
    }
  }
  return least;
}

double StepModel::pipeline_bound(const Candidate& candidate) {
  const int chosen = candidate.at(PlanDim::schedule);
  if (chosen != kOpen)
    return schedule_bound(candidate, space_.schedules[static_cast<std::size_t>(chosen)]);
  if (candidate.at(PlanDim::microbatch) == kOpen) return schedule_bound(candidate, {});
  double least = kEver;
  for (const int schedule : options(space_, candidate))
    least = std::min(
        least, schedule_bound(candidate, space_.schedules[static_cast<std::size_t>(schedule)]));
  return least;
}

// Without a microbatch the schedule says nothing: ranks begin at once, and nothing comes back.
double StepModel::schedule_bound(const Candidate& candidate, const ScheduleChoice& schedule) {
  const Facts& f = facts(candidate);
  const Arrangement& a = f.arrangement;
  const bool has_microbatch = candidate.at(PlanDim::microbatch) != kOpen;
  const LeastWork work = least_work(candidate);
  const LeastMessages messages = least_messages(candidate);
  const double seam = (f.has_grid ? share_of_seam(f.grid()) : 1) * f.patterns.edge.seconds_per_byte;
  const double activation = seam * messages.activation, gradient = seam * messages.gradient;
  // What ranks send: those between two others both ways.
  const double outlet = (a.pp - 1.0) / a.pp * (activation + gradient);
  LeastEnds ends{.last = work.total() / a.pp,
                 .of_stages = (work.total() - work.backward * second_share(a.pp) / 2) / a.pp,
                 .of_outlets = outlet,
                 .outlet = outlet};
  double tied = 0;
  if (has_microbatch) {
    const std::vector<BlockTimes>& times = block_times(candidate);
    std::vector<StageTimes> stages;
    for (const BlockRange& range : split_in(a.pp * schedule.chunks)) {
      StageTimes& stage = stages.emplace_back();
      for (std::int64_t b = range.begin; b < range.end; ++b) {
        stage.forward += times[static_cast<std::size_t>(b)].forward;
        stage.backward += times[static_cast<std::size_t>(b)].backward;
      }
    }
    const double latency = f.patterns.edge.latency + f.device.message_seconds;
    ends = least_ends(schedule, a.pp, work.passes, stages,
                      {activation, activation / work.passes + latency},
                      {gradient, gradient / work.passes + latency}, latency);
    if (schedule.kind != ScheduleKind::zb_v) tied = tied_bound(candidate);
  } else {
    ends.last = std::max(ends.last, grid_bound(candidate) / a.pp);
  }
  if (f.cores > 0) {
    const double together = work.total() * a.dp * a.tp() *
                            f.rate(space_, 0, space_.base.run.precision) /
                            f.core_rate(space_, space_.base.run.precision) / f.cores;
    if (space_.precisions.size() == 1) ends.last = std::max(ends.last, together);
  }
  ends.last = std::max({ends.last, activation, gradient, a.pp > 2 ? activation + gradient : 0});
  double least = kEver;
  for (const LeastRows& rows : least_rows(candidate)) {
    if (a.dp == 1) {
      least = std::min(least, ends.last + rows.update);
      continue;
    }
    const std::vector<LeastSum>& sums = least_sums(f, rows.has_rows);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!is_open_to(candidate.at(PlanDim::dp_policy), i)) continue;
      if (rows.has_rows && !sums[i].may_have_rows) continue;
      const PatternCost& way = sums[i].is_ring ? f.patterns.ring : f.patterns.direct;
      const double wire = (sums[i].bytes * way.seconds_per_byte + rows.wire) / a.pp;
      const SumRhythm& rhythm = sums[i].rhythm;
      const double end =
          rhythm.in_backward
              ? std::max({ends.last, ends.of_stages + wire, ends.of_outlets + wire})
              : with_sums(rhythm, ends.last, wire + (rhythm.beside > 0 ? ends.outlet : 0));
      least = std::min(least, end + rows.update);
    }
  }
  return least + tied;
}

// All in one sum: payloads of several are never shorter together. Of a pipeline some ranks may send
// what is left of a table apart, and some encode nothing. With rows: without tables.
const std::vector<StepModel::LeastSum>& StepModel::least_sums(const Facts& f, bool has_rows) {
  const bool is_cut = f.arrangement.pp > 1;
  std::vector<LeastSum>& sums = least_sums_[{f.of_grid->number, is_cut, has_rows}];
  if (!sums.empty()) return sums;
  std::vector<SummedPart> parts;
  for (std::size_t p = 0; p < space_.spec.parameters.size(); ++p)
    if (!space_.spec.parameters[p].is_frozen && (!is_cut || users_[p] == 1) &&
        (!has_rows || space_.spec.parameters[p].looked_up_by.empty()))
      parts.push_back({&space_.spec.parameters[p], f.elements()[p]});
  for (const PolicyOption& option : space_.policies[static_cast<std::size_t>(PolicyClass::dp)]) {
    const GradientPolicy policy = policy_of(option.applied);
    const SumCost cost = sum_cost(parts, policy, 2, f.device);
    sums.push_back({.bytes = cost.up_bytes + cost.down_bytes,
                    .is_ring = policy.algorithm == SumAlgorithm::ring,
                    .rhythm = rhythm_of(option.applied),
                    .may_have_rows = may_move_beside(option.applied)});
  }
  return sums;
}

// All activations of a step as one message over the narrowest boundary.
StepModel::LeastMessages StepModel::least_messages(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const int chosen = candidate.at(PlanDim::pp_policy), precision = candidate.at(PlanDim::precision);
  const auto [place, is_new] =
      least_messages_.try_emplace({f.arrangement.dp, chosen, precision}, LeastMessages());
  LeastMessages& least = place->second;
  if (!is_new) return least;
  least = {kEver, kEver};
  const auto& policies = space_.policies[static_cast<std::size_t>(PolicyClass::pp)];
  for (std::size_t o = 0; o < policies.size(); ++o)
    for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
      if (!is_open_to(chosen, o) || !is_open_to(precision, i)) continue;
      RunConfig config = policies[o].applied;
      config.run.precision = space_.precisions[i];
      config.mesh = {.pp = 2, .dp = f.arrangement.dp};
      config.train = space_.base.train;
      config.train.microbatch = space_.base.train.batch / f.arrangement.dp;
      const CodecSpec activation = planned_codec(activation_link(config).codec),
                      encoded = planned_codec(gradient_link(config).codec);
      const bool is_always = config.pp_gradient.when == When::always;
      for (std::size_t b = 0; b + 1 < space_.spec.blocks.size(); ++b) {
        LeastMessages here;
        for (const TensorSpec& tensor : boundary_of(config, space_.spec.blocks[b])) {
          const auto bytes = [&](const CodecSpec& codec) {
            return static_cast<double>(max_payload_bytes(codec, tensor));
          };
          here.activation += bytes(activation);
          here.gradient += is_always ? bytes(encoded) : std::min(bytes(encoded), bytes(Raw{}));
        }
        least.activation = std::min(least.activation, here.activation);
        least.gradient = std::min(least.gradient, here.gradient);
      }
    }
  return least;
}

// All samples of a step as one microbatch: what moves of weights then moves once. Of all stages.
double StepModel::grid_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  if (!f.has_grid) return 0;
  const int chosen = candidate.at(PlanDim::tp_policy), precision = candidate.at(PlanDim::precision);
  const auto [place, is_new] =
      grid_bytes_.try_emplace({f.of_grid->number, f.arrangement.dp, chosen, precision}, kEver);
  double& least = place->second;
  if (is_new) {
    const GridLoad load{.samples = space_.base.train.batch / f.arrangement.dp,
                        .has_smoothing = space_.base.task.label_smoothing > 0};
    const std::vector<GridTraffic> traffic = grid_traffic(space_.spec, f.grid(), load);
    const auto& policies = space_.policies[static_cast<std::size_t>(PolicyClass::tp)];
    for (std::size_t o = 0; o < policies.size(); ++o)
      for (std::size_t i = 0; i < space_.precisions.size(); ++i) {
        if (!is_open_to(chosen, o) || !is_open_to(precision, i)) continue;
        RunConfig config = policies[o].applied;
        config.run.precision = space_.precisions[i];
        const GridBytes bytes_of_traffic = grid_bytes_of(config, space_.spec);
        double bytes = 0;
        for (const GridTraffic& one : traffic) bytes += bytes_of_traffic(one).bytes;
        least = std::min(least, bytes);
      }
  }
  return least * f.patterns.grid.seconds_per_byte;
}

// The table that the first and the last block share, where they lie on different ranks.
double StepModel::tied_bound(const Candidate& candidate) {
  const Facts& f = facts(candidate);
  const auto [place, is_new] =
      tied_bounds_.try_emplace({candidate.at(PlanDim::arrangement),
                                candidate.at(PlanDim::dp_policy), candidate.at(PlanDim::pp_policy)},
                               0.0);
  double& seconds = place->second;
  if (!is_new) return seconds;
  const RunConfig config = config_of(space_, candidate);
  if (!config.embedding_tied.fused || config.embedding_tied.late > 0 || config.dp_gradient.late > 0)
    return seconds;
  std::vector<SummedPart> shared;
  for (std::size_t p = 0; p < space_.spec.parameters.size(); ++p) {
    const auto users = users_of(space_.spec, p);
    if (users.front() == 0 &&
        static_cast<std::size_t>(users.back()) + 1 == space_.spec.blocks.size())
      shared.push_back({&space_.spec.parameters[p], f.elements()[p]});
  }
  if (shared.empty()) return seconds;
  const SumCost cost = sum_cost(shared, shared_policy_of(config), 2 * f.arrangement.dp, f.device);
  return seconds = (cost.up_bytes + cost.down_bytes) * f.patterns.tied.seconds_per_byte;
}

// What second stages have of all work where ranks may have two.
double StepModel::second_share(int ranks) {
  if (2 * ranks > static_cast<int>(space_.spec.blocks.size())) return 0;
  double all = 0, second = 0;
  const std::vector<BlockRange>& stages = split_in(2 * ranks);
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (std::int64_t b = stages[s].begin; b < stages[s].end; ++b) {
      const double work = space_.spec.blocks[static_cast<std::size_t>(b)].multiply_adds;
      all += work;
      if (s >= stages.size() / 2) second += work;
    }
  return all > 0 ? second / all : 0;
}

const std::vector<BlockRange>& StepModel::split_in(int stages) {
  std::vector<BlockRange>& ranges = splits_[stages];
  if (!ranges.empty()) return ranges;
  std::vector<double> costs;
  for (const BlockSpec& block : space_.spec.blocks) costs.push_back(block.multiply_adds);
  return ranges = cheapest_stages(costs, space_.spec, stages);
}

}  // namespace laconic
