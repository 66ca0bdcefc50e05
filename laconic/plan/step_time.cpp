// How long a step of a pipeline takes, and what steps of all kinds are made of.
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "laconic/architecture/grid_memory.hpp"
#include "laconic/plan/step_facts.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/planned_codec.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/simulate/rank_work.hpp"

namespace laconic {

namespace {

double rounds_of(int members) {
  return std::ceil(std::log2(static_cast<double>(members)));
}

}  // namespace

SumRhythm rhythm_of(const RunConfig& config) {
  if (config.local.steps > 1) {
    const auto steps = static_cast<double>(config.local.steps);
    const bool is_linear = config.local.method == LocalMethod::linear;
    // Of some rounds the first step is taken together, too.
    const double more =
        is_linear && config.local.refresh > 0 ? 1 / static_cast<double>(config.local.refresh) : 0;
    const double per_step = (1 + more) / steps;
    // Parts that travel at different steps are under way all the time.
    const double beside = config.local.has_parts() && config.local.overlap > 0
                              ? steps
                              : static_cast<double>(is_linear ? config.local.overlap : 0);
    return {.per_step = per_step, .beside = std::min(beside, 1 / per_step), .in_backward = false};
  }
  if (config.dp_gradient.late > 0) return {.per_step = 1, .beside = 1, .in_backward = false};
  return {};
}

const PatternCost& way_of(const StepModel::Patterns& patterns, const GradientPolicy& policy) {
  return policy.algorithm == SumAlgorithm::ring ? patterns.ring : patterns.direct;
}

SumSeconds sum_seconds(const PatternCost& way, const SumCost& cost, const HostDevice& device,
                       double core_share) {
  SumSeconds seconds{.wire = (cost.up_bytes + cost.down_bytes) * way.seconds_per_byte};
  const double handling = handling_seconds(cost, device);
  if (device.is_gpu) {
    seconds.wire = std::max(seconds.wire, handling);
    seconds.busy = cost.codec_seconds;
  } else {
    seconds.busy = (cost.codec_seconds + handling) / core_share;
  }
  return seconds;
}

// Copies of a rank's parameters in a step, besides its update: what leaves in sums, and of local
// updates what a round's changes take.
double copies_of_step(const RunConfig& config, int ranks) {
  if (ranks == 1) return 0;
  const ParameterPasses passes = parameter_passes(config.local);
  if (config.local.steps == 0) return passes.together;
  const auto steps = static_cast<double>(config.local.steps);
  const bool is_linear = config.local.method == LocalMethod::linear && config.local.refresh > 0;
  const double together = is_linear ? 1 / static_cast<double>(config.local.refresh) : 0;
  return (passes.leaving + passes.arriving + together * passes.together) / steps;
}

double update_seconds(const HostDevice& device, double core_share, double elements,
                      const RunConfig& config, int ranks) {
  return per_second(elements, device.updates_per_second * core_share) +
         pass_seconds(copies_of_step(config, ranks), elements, device) / core_share;
}

double agreement_seconds(const StepModel::Patterns& patterns, const HostDevice& device,
                         double core_share, const std::vector<RowCost>& rows, int ranks) {
  if (ranks == 1) return 0;
  const bool asks_for_norm =
      std::ranges::any_of(rows, [](const RowCost& row) { return row.asks_for_norm; });
  return (asks_for_norm ? 2 : 1) * rounds_of(ranks) *
         (patterns.agreement.latency + device.message_seconds / core_share);
}

std::vector<StepModel::RowTimes> StepModel::row_times(const Step& step) const {
  const Facts& f = step.facts;
  std::vector<RowTimes> times;
  for (const RowCost& row : step.rows) {
    const auto seconds = [&](const SumCost& cost) {
      return sum_seconds(f.patterns.direct, cost, f.device, f.core_share);
    };
    times.push_back(
        {.block = row.block,
         .rows = seconds(row.rows),
         .prior = seconds(row.prior),
         .delayed = seconds(row.delayed),
         .copy = per_second(row.copied_bytes, f.device.copy_bytes_per_second * f.core_share),
         .update = per_second(row.updated, f.device.updates_per_second * f.core_share)});
  }
  return times;
}

namespace {

// What a boundary costs its two ends in codecs, for a microbatch.
struct BoundaryCodec {
  double encode = 0, decode = 0;
};

BoundaryCodec boundary_codec(const CodecSpec& codec, const std::vector<TensorSpec>& tensors,
                             double share, const HostDevice& device) {
  BoundaryCodec seconds;
  if (!is_lossy(codec)) return seconds;
  const CodecRate rate = codec_rate(device, codec);
  for (const TensorSpec& tensor : tensors) {
    const double bytes = 4 * share * static_cast<double>(elements_of(tensor));
    seconds.encode += per_second(bytes, rate.encode);
    seconds.decode += per_second(bytes, rate.decode);
  }
  return seconds;
}

double payload_bytes(const CodecSpec& codec, const std::vector<TensorSpec>& tensors) {
  double bytes = 0;
  for (const TensorSpec& tensor : tensors)
    bytes += static_cast<double>(max_payload_bytes(codec, tensor));
  return bytes;
}

}  // namespace

// A pipeline's step on its way to be timed.
struct StepModel::PipelineStep {
  PipelineDecisions decisions;
  PipelinePlan plan;
  Costs costs;
  std::vector<int> rank_of_block;
  double own = 1;         // of a core that a rank has for codecs while all compute
  double codec_work = 0;  // seconds of codecs at all boundaries, for a microbatch
  double sum_work = 0;    // seconds of codecs and handling of all sums
  // Of sums that do not leave in backward, and of all messages of a step, on the link of a rank.
  std::vector<SumSeconds> sums;
  std::vector<double> outlets;
  SumSeconds tied;
  double rows = 0;  // before rows of tables are there, and what they take of a processor
  double tail = 0;
};

// Stages compute, and encode and decode what crosses their boundaries.
void StepModel::add_stages(const Step& step, PipelineStep& p) const {
  const Facts& f = step.facts;
  for (const BlockRange& range : p.plan.stages) {
    StageCost cost{0, 0, 0, 0, 0};
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      cost.forward += step.times[static_cast<std::size_t>(b)].forward;
      cost.backward += step.times[static_cast<std::size_t>(b)].backward;
    }
    p.costs.stages.push_back(cost);
  }
  const double seam = f.has_grid ? share_of_seam(f.grid()) : 1;
  p.outlets.assign(static_cast<std::size_t>(f.arrangement.pp), 0);
  const bool is_always = step.config.pp_gradient.when == When::always;
  for (std::size_t s = 0; s + 1 < p.plan.stages.size(); ++s) {
    p.costs.edges.emplace_back();
    const int number = static_cast<int>(s);
    if (!crosses_ranks(p.plan.schedule, number)) continue;
    const CodecSpec activation =
                        planned_codec(link_at(p.plan, Traffic::pp_activation, number).codec),
                    gradient = planned_codec(link_at(p.plan, Traffic::pp_gradient, number).codec);
    const CodecSpec usual = is_always ? gradient : CodecSpec(Raw{});
    const std::vector<TensorSpec> tensors = boundary_of(
        step.config, space_.spec.blocks[static_cast<std::size_t>(p.plan.stages[s].end - 1)]);
    const auto seconds = [&](const CodecSpec& codec) {
      return seam * payload_bytes(codec, tensors) * f.patterns.edge.seconds_per_byte;
    };
    p.costs.edges.back() = {.activation = seconds(activation),
                            .gradient = seconds(usual),
                            .encoded_gradient = seconds(gradient)};
    const BoundaryCodec forward = boundary_codec(activation, tensors, seam, f.device),
                        back = boundary_codec(usual, tensors, seam, f.device);
    p.costs.stages[s].forward += forward.encode / p.own;
    p.costs.stages[s].backward += back.decode / p.own;
    p.costs.stages[s + 1].forward += forward.decode / p.own;
    p.costs.stages[s + 1].backward += back.encode / p.own;
    p.codec_work += forward.encode + forward.decode + back.encode + back.decode;
    const auto messages = static_cast<double>(step.config.microbatches());
    const EdgeCost& edge = p.costs.edges.back();
    p.outlets[static_cast<std::size_t>(rank_of_stage(p.plan.schedule, static_cast<int>(s)))] +=
        messages * edge.activation;
    p.outlets[static_cast<std::size_t>(rank_of_stage(p.plan.schedule, static_cast<int>(s) + 1))] +=
        messages * (p.decisions.encoded.empty() ? edge.gradient
                                                : std::min(edge.gradient, edge.encoded_gradient));
  }
  for (StageCost& cost : p.costs.stages)
    cost.backward_input = cost.backward_weight = cost.backward / 2;
}

// Sums of each rank behind its last backward, and then that of what stages share.
void StepModel::add_sums(const Step& step, PipelineStep& p) const {
  const Facts& f = step.facts;
  const ModelSpec& spec = space_.spec;
  std::set<std::size_t> fused;
  std::vector<SummedPart> shared;
  if (step.config.embedding_tied.fused)
    for (const SharedParameters& set : shared_parameters(spec, p.rank_of_block))
      for (const std::size_t number : set.parameters) {
        fused.insert(number);
        shared.push_back({&spec.parameters[number], f.elements()[number]});
      }
  std::vector<std::vector<SummedPart>> by_rank(static_cast<std::size_t>(f.arrangement.pp));
  std::vector<double> elements(by_rank.size(), 0), row_updates(by_rank.size(), 0);
  std::vector<SumSeconds> row_sums(by_rank.size());
  std::set<std::size_t> tables;
  const std::vector<RowTimes> rows = row_times(step);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const auto rank = static_cast<std::size_t>(p.rank_of_block[rows[t].block]);
    tables.insert(step.rows[t].parameter);
    row_updates[rank] += rows[t].update;
    row_sums[rank].wire += rows[t].prior.wire;
    row_sums[rank].busy += rows[t].prior.busy;
  }
  for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
    if (spec.parameters[i].is_frozen || tables.contains(i)) continue;
    const auto rank = static_cast<std::size_t>(p.rank_of_block[first_users_[i]]);
    elements[rank] += f.elements()[i];
    if (!fused.contains(i)) by_rank[rank].push_back({&spec.parameters[i], f.elements()[i]});
  }
  std::set<int> counted;  // the first stage of a rank has the sums of all its stages
  for (std::size_t s = 0; s < p.costs.stages.size() && f.arrangement.dp > 1; ++s) {
    const int rank = rank_of_stage(p.plan.schedule, static_cast<int>(s));
    if (!counted.insert(rank).second) continue;
    const GradientPolicy policy =
        policy_of(step.config, {.pp = rank, .encoded = p.decisions.encoded_ranks});
    SumSeconds sum = sum_seconds(
        way_of(f.patterns, policy),
        sum_cost(by_rank[static_cast<std::size_t>(rank)], policy, f.arrangement.dp, f.device),
        f.device, p.own);
    sum.wire += row_sums[static_cast<std::size_t>(rank)].wire;
    sum.busy += row_sums[static_cast<std::size_t>(rank)].busy;
    if (step.rhythm.in_backward)
      p.costs.stages[s].reduction = sum.wire + sum.busy;
    else
      p.sums.push_back(sum);
    p.sum_work += sum.busy * p.own * f.arrangement.dp * step.rhythm.per_step;
  }
  if (!shared.empty()) {
    const GradientPolicy policy = shared_policy_of(step.config);
    p.tied = sum_seconds(f.patterns.tied, sum_cost(shared, policy, 2 * f.arrangement.dp, f.device),
                         f.device, p.own);
    p.tied.wire += 2 * f.patterns.tied.latency;
  }
  const int ranks = f.arrangement.ranks();
  for (std::size_t rank = 0; rank < elements.size(); ++rank)
    p.tail =
        std::max(p.tail, row_updates[rank] + update_seconds(f.device, f.core_share, elements[rank],
                                                            step.config, ranks));
  p.tail += agreement_seconds(f.patterns, f.device, f.core_share, step.rows, ranks);
}

// A step begins when rows of the first stage are there; those of others have until activations
// come. All of one rank travel at once.
void StepModel::add_rows(const Step& step, PipelineStep& p) const {
  const std::vector<RowTimes> rows = row_times(step);
  std::vector<double> wire(p.outlets.size(), 0), busy(p.outlets.size(), 0);
  double late = 0;
  for (const RowTimes& row : rows) {
    const auto rank = static_cast<std::size_t>(p.rank_of_block[row.block]);
    busy[rank] += 3 * row.copy + row.rows.busy + row.delayed.busy;
    wire[rank] += row.rows.wire;
    double begins = 0;
    for (std::size_t s = 0; s < p.plan.stages.size(); ++s) {
      if (static_cast<std::int64_t>(row.block) < p.plan.stages[s].end) break;
      begins += p.costs.stages[s].forward + p.costs.edges[s].activation + p.costs.latency;
    }
    if (row.rows.wire > 0)
      late = std::max(late, wire[rank] + step.facts.patterns.direct.latency - begins);
  }
  if (!rows.empty()) p.rows = late + *std::ranges::max_element(busy);
}

// Asked for when a candidate may fit, and again when it is timed.
const PipelineDecisions& StepModel::decisions(const Candidate& candidate, const RunConfig& config) {
  if (decided_ && decided_->first == candidate) return decided_->second;
  const PatternCost& edge = facts(candidate).patterns.edge;
  const LinkFacts link{.bytes_per_second = per_second(1, edge.seconds_per_byte),
                       .latency = edge.latency};
  decided_.emplace(candidate, decide_pipeline(config, space_.spec, link,
                                              [&] { return block_times(candidate); }));
  return decided_->second;
}

StepModel::PipelineStep StepModel::prepare_pipeline(const Step& step) {
  const Facts& f = step.facts;
  const PatternCost& edge = f.patterns.edge;
  PipelineStep p;
  p.decisions = decisions(step.candidate, step.config);
  p.plan = plan_of(step.config, p.decisions);
  p.rank_of_block = ranks_of_blocks(p.plan);
  p.own = f.device.is_gpu ? 1 : f.core_share;
  p.costs = {.stages = {},
             .edges = {},
             .latency = edge.latency + f.device.message_seconds,
             .wiring = Wiring::switched,
             .encoded = p.decisions.encoded};
  add_stages(step, p);
  add_sums(step, p);
  add_rows(step, p);
  return p;
}

// Ranks that share cores cannot do more work than these do.
double StepModel::least_of_cores(const Step& step, const PipelineStep& p) const {
  const Facts& f = step.facts;
  if (f.cores == 0) return 0;
  double work = 0;
  for (const BlockTimes& t : step.times) work += t.forward + t.backward;
  const RunPrecision precision = step.config.run.precision;
  work *= f.rate(space_, 0, precision) / f.core_rate(space_, precision);
  const double microbatches = static_cast<double>(step.config.microbatches());
  return ((work + p.codec_work) * microbatches * f.arrangement.dp * f.arrangement.tp() +
          p.sum_work) /
         f.cores;
}

// A step with sums that are not in the schedule: those of rounds, and those that are late, which
// share links with the messages of the next step.
double StepModel::with_late_sums(const Step& step, const PipelineStep& p, double makespan) const {
  double busy = 0, wire = 0;
  for (std::size_t rank = 0; rank < p.sums.size(); ++rank) {
    busy = std::max(busy, p.sums[rank].busy);
    const double shared = step.rhythm.beside > 0 ? p.outlets[rank] : 0;
    wire = std::max(wire, p.sums[rank].wire + shared);
  }
  if (p.sums.empty()) return makespan;
  return with_sums(step.rhythm, makespan + step.rhythm.per_step * busy,
                   wire + 2 * step.facts.patterns.direct.latency);
}

// What of a pass is not computing: messages of a grid, and norms.
double StepModel::grid_share(const Step& step) const {
  if (!step.facts.has_grid) return 0;
  double pass = 0, work = 0;
  for (const BlockTimes& t : step.times) pass += t.forward + t.backward;
  for (const BlockSpec& block : space_.spec.blocks)
    work += block.multiply_adds * (step.config.model.recompute && !block.out.empty() ? 4 : 3);
  work *= static_cast<double>(step.config.microbatch_size()) / step.facts.arrangement.tp() /
          step.facts.rate(space_, 0, step.config.run.precision);
  return pass > 0 ? 1 - work / pass : 0;
}

double StepModel::pipeline_seconds(const Step& step, StepTime* parts) {
  const PipelineStep p = prepare_pipeline(step);
  const Timing timing = estimate(p.plan.schedule, p.costs);
  const double floor = least_of_cores(step, p);
  const double in_order = std::max(timing.makespan, floor);
  const double makespan = with_late_sums(step, p, in_order);
  const bool is_tied_late = step.config.embedding_tied.late > 0 || step.config.dp_gradient.late > 0;
  const double tied =
      p.tied.busy + (is_tied_late ? std::max(0.0, p.tied.wire - makespan) : p.tied.wire);
  if (parts != nullptr) {
    Costs still = p.costs, unsummed = p.costs;
    for (StageCost& stage : unsummed.stages) stage.reduction = 0;
    still.stages = unsummed.stages;
    still.edges.assign(still.edges.size(), {});
    still.latency = 0;
    const double no_links = estimate(p.plan.schedule, still).makespan,
                 no_sums = estimate(p.plan.schedule, unsummed).makespan;
    const double computed = std::max(*std::ranges::max_element(timing.busy), floor);
    const double codec = p.codec_work * static_cast<double>(step.config.microbatches()) / p.own,
                 grid = computed * grid_share(step);
    *parts = {.compute = computed - grid,
              .codec = std::min(codec, computed - grid),
              .bubble = std::max(0.0, no_links - computed),
              .boundary = std::max(0.0, no_sums - std::max(no_links, computed)),
              .grid = grid,
              .rows = p.rows,
              .sum = std::max(0.0, makespan - std::max(no_sums, computed)),
              .tied = tied,
              .update = p.tail};
  }
  return makespan + p.rows + tied + p.tail;
}

StepPicture StepModel::picture(const Candidate& candidate) {
  const Step step = prepare(candidate);
  if (step.facts.arrangement.pp > 1) {
    PipelineStep p = prepare_pipeline(step);
    p.costs.step = p.tied.wire + p.tied.busy + p.rows + p.tail;
    return {p.plan.schedule, estimate(p.plan.schedule, p.costs)};
  }
  StepTime parts;
  alone_seconds(step, &parts);
  StageCost stage{0, 0, 0, 0, parts.sum + parts.rows};
  for (const BlockTimes& t : step.times) stage.forward += t.forward, stage.backward += t.backward;
  stage.backward_input = stage.backward_weight = stage.backward / 2;
  const auto microbatches = static_cast<int>(step.config.microbatches());
  const Schedule schedule = lowered(one_forward_one_backward({1, 1, microbatches}));
  return {schedule, estimate(schedule, {.stages = {stage}, .edges = {}, .step = parts.update})};
}

}  // namespace laconic
