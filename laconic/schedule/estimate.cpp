// estimate(): simulates the schedule (discrete_event.cpp) and adds up what that says.
//
// The makespan is when the last event is over, messages arrived and sums done, and
// `costs.step` on top. A rank is busy for the sum of its computations, and idle for
// the rest of the makespan: what it waits for messages, for its own sums and for
// others at the end is all idle time. An activation is held from the begin of its F
// to the end of its B or W. A rank does one thing at a time, so its list is the
// order of time and the most that it holds (`live`) is found by counting along it,
// whatever the costs.
#include "laconic/schedule/estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/schedule/discrete_event.hpp"

namespace laconic {

namespace {

using part::EventKind;
using part::EventProgram;
using part::kNone;
using part::Walk;

// --- what is wrong with costs

void check_seconds(Problems& problems, const std::string& where, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0)
    problems.push_back({where, fmt::format("{} is no number of seconds", seconds)});
}

void check_stages(Problems& problems, const Costs& costs, const PipelineShape& shape) {
  if (costs.stages.size() != 1 && costs.stages.size() != index(shape.stages))
    problems.push_back({"costs.stages", fmt::format("there are {} for {} stages; give one for all, "
                                                    "or one for each",
                                                    costs.stages.size(), shape.stages)});
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCost& stage = costs.stages[i];
    const std::string where = fmt::format("costs.stages[{}]", i);
    check_seconds(problems, where + ".forward", stage.forward);
    check_seconds(problems, where + ".backward", stage.backward);
    check_seconds(problems, where + ".backward_input", stage.backward_input);
    check_seconds(problems, where + ".backward_weight", stage.backward_weight);
    check_seconds(problems, where + ".reduction", stage.reduction);
  }
}

void check_edges(Problems& problems, const Costs& costs, const PipelineShape& shape) {
  if (costs.edges.size() > 1 && costs.edges.size() != index(edge_count(shape)))
    problems.push_back({"costs.edges", fmt::format("there are {} for {} edges; give none, one for "
                                                   "all, or one for each",
                                                   costs.edges.size(), edge_count(shape))});
  for (std::size_t i = 0; i < costs.edges.size(); ++i) {
    const std::string where = fmt::format("costs.edges[{}]", i);
    check_seconds(problems, where + ".activation", costs.edges[i].activation);
    check_seconds(problems, where + ".gradient", costs.edges[i].gradient);
    check_seconds(problems, where + ".encoded_gradient", costs.edges[i].encoded_gradient);
  }
}

void check_encoded(Problems& problems, const Costs& costs, const PipelineShape& shape) {
  if (costs.encoded.empty()) return;
  if (costs.encoded.size() != index(edge_count(shape)))
    problems.push_back({"costs.encoded", fmt::format("says it of {} edges, there are {}",
                                                     costs.encoded.size(), edge_count(shape))});
  for (std::size_t edge = 0; edge < costs.encoded.size(); ++edge)
    if (costs.encoded[edge].size() != index(shape.microbatches))
      problems.push_back({fmt::format("costs.encoded[{}]", edge),
                          fmt::format("says it of {} microbatches, there are {}",
                                      costs.encoded[edge].size(), shape.microbatches)});
}

// Says of each rank that is stuck whom it would have to meet.
Problems describe_stuck(const Schedule& lowered, const EventProgram& program, const Walk& walk) {
  Problems problems;
  for (int rank = 0; rank < lowered.shape.ranks; ++rank) {
    const int at = walk.stuck_at[index(rank)];
    if (at == kNone) continue;
    const part::Step& step = program.by_rank[index(rank)][index(at)];
    const auto& ranks = program.meetings[index(step.index)].ranks;
    problems.push_back(
        {fmt::format("rank {}, action {}", rank, step.action),
         fmt::format("{} waits for ever for rank {}, which waits as well: with paired exchange a "
                     "send ends only when it is received",
                     to_text(lowered.by_rank[index(rank)][index(step.action)],
                             chunks_of(lowered.shape) > 1),
                     ranks[0] == rank ? ranks[1] : ranks[0])});
  }
  return problems;
}

// --- what a walk says

int most_live(const std::vector<Action>& actions) {
  int live = 0, most = 0;
  for (const Action& action : actions) {
    if (action.op == Op::forward) most = std::max(most, ++live);
    if (action.op == Op::backward || action.op == Op::backward_weight) --live;
  }
  return most;
}

void add_span(Timing& timing, const part::Event& event, Span span, double latency) {
  switch (event.kind) {
    case EventKind::compute:
      timing.compute.push_back(span);
      timing.compute_end[index(event.rank)] = span.end;
      timing.busy[index(event.rank)] += span.end - span.begin;
      break;
    case EventKind::message:
      span.end += latency;
      timing.messages.push_back(span);
      break;
    case EventKind::reduction:
      timing.reductions.push_back({event.action.stage, event.rank, span.begin, span.end});
      break;
  }
}

Timing timing_of(const Schedule& schedule, const Costs& costs, const EventProgram& program,
                 const Walk& walk) {
  const std::size_t ranks = schedule.by_rank.size();
  Timing timing;
  timing.makespan = walk.last_end + costs.step;
  timing.compute_end.assign(ranks, 0);
  timing.busy.assign(ranks, 0);
  for (std::size_t i = 0; i < program.events.size(); ++i) {
    const part::Event& event = program.events[i];
    add_span(timing, event, {event.action, event.rank, walk.begin[i], walk.end[i]}, costs.latency);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    timing.idle.push_back(timing.makespan - timing.busy[rank]);
    timing.live_activations.push_back(most_live(schedule.by_rank[rank]));
  }
  std::ranges::stable_sort(timing.messages, {}, &Span::begin);
  return timing;
}

}  // namespace

Problems check(const Costs& costs, const PipelineShape& shape) {
  Problems problems;
  check_stages(problems, costs, shape);
  check_edges(problems, costs, shape);
  check_encoded(problems, costs, shape);
  check_seconds(problems, "costs.latency", costs.latency);
  check_seconds(problems, "costs.step", costs.step);
  if (costs.wiring == Wiring::switched &&
      (!costs.full_duplex || costs.exchange == Exchange::paired))
    problems.push_back({"costs.wiring",
                        "switched goes with full duplex and sends that do not "
                        "block only"});
  return problems;
}

Problems check(const Costs& costs, const Schedule& lowered) {
  Problems problems = check(costs, lowered.shape);
  if (!problems.empty() || costs.exchange == Exchange::asynchronous) return problems;
  const EventProgram program = part::compile(lowered, costs.exchange);
  return describe_stuck(lowered, program, part::walk(program, costs));
}

Timing estimate(const Schedule& schedule, const Costs& costs) {
  const EventProgram program = part::compile(schedule, costs.exchange);
  const Walk walk =
      costs.wiring == Wiring::switched ? part::flow(program, costs) : part::walk(program, costs);
  refuse(describe_stuck(schedule, program, walk));
  return timing_of(schedule, costs, program, walk);
}

}  // namespace laconic
