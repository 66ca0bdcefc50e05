// walk(): a discrete-event simulation with one queue of wake-ups.
//
// It computes for each event e
//
//     begin(e) = max of end(w.earlier) + w.lag   over all waits w with w.later = e
//     end(e)   = begin(e) + seconds(e)
//
// A wait has one of three reasons: the event comes after another in its rank's
// list; it needs a message, which arrives `latency` after its end; its wire was
// another's before. The schedule says the first two. The third is decided here:
// who asks first is served first.
//
// Why one pass is enough: a rank does at once all that takes no time, and then
// sleeps until its computation ends or what it waits for arrives. Wake-ups leave
// the queue in the order of time (of rank, where times are equal), and no rank
// wakes another before its own present. So wires are asked for in the order of
// time, and who asks finds on the wire an event whose end is known: a begin is
// final when it is written. A rank's present is the latest of what it has waited
// for since its last event (RankState::last), the queue is `wakes_`, and a wire is
// no more than the event that had it last (`last_on_`).
#include "laconic/schedule/discrete_event.hpp"
#include "laconic/base/index.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace laconic::part {

namespace {

const EdgeCost& cost_of_edge(const Costs& costs, int edge) {
  static constexpr EdgeCost kFree;
  if (costs.edges.empty()) return kFree;
  return costs.edges.size() == 1 ? costs.edges[0] : costs.edges[index(edge)];
}

struct Awaited {
  int event = 0;
  double lag = 0;
};

struct RankState {
  std::size_t at = 0;
  std::vector<Awaited> last;  // what the rank's present follows from
};

class Walker {
 public:
  Walker(const EventProgram& program, const Costs& costs)
      : program_(program),
        costs_(costs),
        ranks_(program.by_rank.size()),
        waiting_(program.events.size(), kNone),
        entered_(program.meetings.size(), kNone) {
    last_on_.assign(index(program.wires) + program.by_rank.size(), kNone);
    for (const Event& event : program.events)
      walk_.seconds.push_back(seconds_of_event(costs, event));
    walk_.begin.assign(program.events.size(), kNotYet);
    walk_.end.assign(program.events.size(), kNotYet);
  }

  Walk run() {
    for (int rank = 0; rank < program_.shape.ranks; ++rank) wakes_.push({0, rank});
    while (!wakes_.empty()) {
      const auto [now, rank] = wakes_.top();
      wakes_.pop();
      while (act(rank, now)) ++ranks_[index(rank)].at;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      walk_.stuck_at.push_back(ranks_[rank].at == program_.by_rank[rank].size()
                                   ? kNone
                                   : static_cast<int>(ranks_[rank].at));
    return std::move(walk_);
  }

 private:
  static constexpr double kNotYet = -1;

  // Does the rank's next step. False: the rank sleeps, or has come to its end. A rank that sleeps
  // is past its step already, unless the step waits for something that has not begun.
  bool act(int rank, double now) {
    RankState& self = ranks_[index(rank)];
    const std::vector<Step>& steps = program_.by_rank[index(rank)];
    if (self.at == steps.size()) return false;
    const Step& step = steps[self.at];
    switch (step.kind) {
      case StepKind::compute: return compute(rank, step.index, now);
      case StepKind::send: return send(rank, step.index, now);
      case StepKind::receive: return receive(rank, step.index, now);
      case StepKind::meet: return meet(rank, step.index, now);
      case StepKind::reduce: return reduce(rank, step.index, now);
    }
    return false;
  }

  bool compute(int rank, int event, double now) {
    begin(event, now, ranks_[index(rank)].last, {kNone, kNone});
    ranks_[index(rank)].last = {{event, 0}};
    return sleep_until(rank, walk_.end[index(event)]);
  }

  bool send(int rank, int event, double now) {
    const int peer = program_.events[index(event)].peer;
    begin(event, now, ranks_[index(rank)].last, wires_of(event));
    if (waiting_[index(event)] != kNone) wakes_.push({arrival(event), peer});
    return true;
  }

  bool receive(int rank, int event, double now) {
    if (walk_.begin[index(event)] == kNotYet) {
      waiting_[index(event)] = rank;
      return false;
    }
    ranks_[index(rank)].last.push_back({event, costs_.latency});
    return arrival(event) <= now || sleep_until(rank, arrival(event));
  }

  bool meet(int rank, int which, double now) {
    const PairedExchange& meeting = program_.meetings[index(which)];
    const int first = std::exchange(entered_[index(which)], rank);
    if (first == kNone) return false;
    std::vector<Awaited> before = ranks_[index(rank)].last;
    before.insert(before.end(), ranks_[index(first)].last.begin(), ranks_[index(first)].last.end());
    std::vector<Awaited> after;
    double leave = now;
    for (const int event : meeting.messages) {
      begin(event, now, before, wires_of(event));
      after.push_back({event, costs_.latency});
      leave = std::max(leave, arrival(event));
    }
    for (const int member : meeting.ranks) {
      ranks_[index(member)].last = after;
      sleep_until(member, leave);
    }
    return false;
  }

  // With wires between pairs no message uses the outlet: sums have it to themselves.
  bool reduce(int rank, int event, double now) {
    begin(event, now, ranks_[index(rank)].last, {outlet(rank), kNone});
    return true;
  }

  bool sleep_until(int rank, double time) {
    ++ranks_[index(rank)].at;
    wakes_.push({time, rank});
    return false;
  }

  // --- time and wires

  using Wires = std::array<int, 2>;

  int outlet(int rank) const { return program_.wires + rank; }

  // A wire for both ways has the even number of its two.
  Wires wires_of(int event) const {
    const Event& message = program_.events[index(event)];
    if (costs_.wiring != Wiring::pairs)
      return {outlet(message.rank), costs_.full_duplex ? kNone : outlet(message.peer)};
    return {costs_.full_duplex ? message.wire : message.wire / 2 * 2, kNone};
  }

  void begin(int event, double now, const std::vector<Awaited>& after, const Wires& wires) {
    double begin = now;
    for (const Awaited& wait : after) walk_.waits.push_back({wait.event, event, wait.lag});
    for (const int wire : wires) {
      if (wire == kNone) continue;
      const int last = std::exchange(last_on_[index(wire)], event);
      if (last == kNone) continue;
      walk_.waits.push_back({last, event, 0});
      begin = std::max(begin, walk_.end[index(last)]);
    }
    walk_.begin[index(event)] = begin;
    walk_.end[index(event)] = begin + walk_.seconds[index(event)];
    walk_.last_end = std::max(walk_.last_end, arrival(event));
  }

  double arrival(int event) const {
    const bool is_message = program_.events[index(event)].kind == EventKind::message;
    return walk_.end[index(event)] + (is_message ? costs_.latency : 0);
  }

  const EventProgram& program_;
  const Costs& costs_;
  Walk walk_;
  std::vector<RankState> ranks_;
  std::vector<int> waiting_;  // by event: the rank that sleeps until it begins
  std::vector<int> entered_;  // by meeting: the rank that came first
  std::vector<int> last_on_;  // by wire between a pair, then by outlet
  using Wake = std::pair<double, int>;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

const StageCost& cost_of_stage(const Costs& costs, int stage) {
  return costs.stages.size() == 1 ? costs.stages[0] : costs.stages[index(stage)];
}

double seconds_of_event(const Costs& costs, const Event& event) {
  const Action& action = event.action;
  const StageCost& stage = cost_of_stage(costs, action.stage);
  if (event.kind == EventKind::reduction) return stage.reduction;
  switch (action.op) {
    case Op::forward: return stage.forward;
    case Op::backward: return stage.backward;
    case Op::backward_input: return stage.backward_input;
    case Op::backward_weight: return stage.backward_weight;
    case Op::send_activation: return cost_of_edge(costs, action.stage).activation;
    case Op::send_gradient: {
      const EdgeCost& edge = cost_of_edge(costs, action.stage - 1);
      const bool is_encoded = !costs.encoded.empty() &&
                              costs.encoded[index(action.stage - 1)][index(action.microbatch)];
      return is_encoded ? edge.encoded_gradient : edge.gradient;
    }
    default: return 0;
  }
}

Walk walk(const EventProgram& program, const Costs& costs) {
  return Walker(program, costs).run();
}

// The other way round: an event may end as late as those that wait for it allow,
//
//     latest(e) = min of latest(w.later) - seconds(w.later) - w.lag   over all waits w with
//     w.earlier = e
//
// or last_end, if there are none; the slack is latest - end. `waits` stand in the order in which
// their later events began, and none waits for what has not begun. So from the end of the list
// latest(w.later) is final before it is used.
std::vector<double> slack_of_events(const EventProgram& program, const Walk& walk,
                                    const Costs& costs) {
  std::vector<double> latest(program.events.size(), walk.last_end);
  for (std::size_t i = 0; i < latest.size(); ++i)
    if (program.events[i].kind == EventKind::message) latest[i] -= costs.latency;
  for (auto wait = walk.waits.rbegin(); wait != walk.waits.rend(); ++wait) {
    const std::size_t later = index(wait->later), earlier = index(wait->earlier);
    latest[earlier] = std::min(latest[earlier], latest[later] - walk.seconds[later] - wait->lag);
  }
  for (std::size_t i = 0; i < latest.size(); ++i) latest[i] -= walk.end[i];
  return latest;
}

}  // namespace laconic::part
