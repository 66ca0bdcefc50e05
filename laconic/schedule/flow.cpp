// flow(): a flow-level simulation, where messages share outlets and inlets instead of queueing.
//
// What a rank sends to another goes one message after the other; messages of
// different pairs flow at once. If `out` messages leave the sender and `in` arrive
// at the receiver, this one flows at
//
//     rate = min(1 / out, 1 / in)     of the full rate,
//
// as over a switch, where the narrower end decides. (What a flow cannot use of its
// share is not given to the others: a little less than max-min fairness would give.)
// Rates change only when a message begins or ends, or a rank goes on. So time
// jumps from one such change to the next (next_change()), `left` seconds at full
// rate become left - (time - now_) rate, and a message ends when nothing is left.
// Its end is known only when it is there, so that slack is not computed here.
#include <algorithm>
#include <limits>
#include <map>
#include <queue>

#include "laconic/base/index.hpp"
#include "laconic/schedule/discrete_event.hpp"

namespace laconic::part {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDone = 1e-12;  // the share of a message that rounding may leave

// The messages of an ordered pair; a rank's sums are a flow to nobody.
struct Flow {
  std::queue<int> events;  // the first is under way
  double left = 0;         // seconds of it at full rate
  double rate = 0;
};

class FlowWalker {
 public:
  FlowWalker(const EventProgram& program, const Costs& costs)
      : program_(program),
        costs_(costs),
        at_(program.by_rank.size(), 0),
        wake_(program.by_rank.size(), 0),
        awaits_(program.by_rank.size(), kNone) {
    for (const Event& event : program.events)
      walk_.seconds.push_back(seconds_of_event(costs, event));
    walk_.begin.assign(program.events.size(), 0);
    walk_.end.assign(program.events.size(), kNever);
  }

  Walk run() {
    for (double next = 0; next < kNever; next = next_change()) {
      advance_to(next);
      for (std::size_t rank = 0; rank < at_.size(); ++rank)
        while (wake_[rank] <= now_ && act(static_cast<int>(rank))) {
        }
    }
    for (std::size_t rank = 0; rank < at_.size(); ++rank)
      walk_.stuck_at.push_back(
          at_[rank] == program_.by_rank[rank].size() ? kNone : static_cast<int>(at_[rank]));
    return std::move(walk_);
  }

 private:
  // False: the rank sleeps until wake_, or until its message comes.
  bool act(int rank) {
    const std::vector<Step>& steps = program_.by_rank[index(rank)];
    if (at_[index(rank)] == steps.size()) return sleep(rank, kNever);
    const Step& step = steps[at_[index(rank)]];
    if (step.kind == StepKind::receive) return receive(rank, step.index);
    ++at_[index(rank)];
    if (step.kind != StepKind::compute) {
      begin(step.index);
      return true;
    }
    walk_.begin[index(step.index)] = now_;
    walk_.end[index(step.index)] = now_ + walk_.seconds[index(step.index)];
    note_end(walk_.end[index(step.index)]);
    return sleep(rank, walk_.end[index(step.index)]);
  }

  bool receive(int rank, int event) {
    const double arrival = walk_.end[index(event)] + costs_.latency;
    if (arrival == kNever) {
      awaits_[index(rank)] = event;
      return sleep(rank, kNever);
    }
    ++at_[index(rank)];
    return arrival <= now_ || sleep(rank, arrival);
  }

  bool sleep(int rank, double until) {
    wake_[index(rank)] = until;
    return false;
  }

  void note_end(double end) { walk_.last_end = std::max(walk_.last_end, end); }

  // --- flows

  void begin(int event) {
    const Event& e = program_.events[index(event)];
    Flow& flow = flows_[{e.rank, e.peer}];
    flow.events.push(event);
    if (flow.events.size() == 1) start(flow);
    share();
  }

  void start(Flow& flow) {
    walk_.begin[index(flow.events.front())] = now_;
    flow.left = walk_.seconds[index(flow.events.front())];
  }

  void share() {
    std::map<int, int> out, in;
    for (const auto& [pair, flow] : flows_)
      if (!flow.events.empty()) ++out[pair.first], ++in[pair.second];
    for (auto& [pair, flow] : flows_)
      if (!flow.events.empty())
        flow.rate = 1.0 / std::max(out[pair.first], pair.second == kNone ? 1 : in[pair.second]);
  }

  double next_change() const {
    double next = kNever;
    for (const double wake : wake_) next = std::min(next, wake);
    for (const auto& [pair, flow] : flows_)
      if (!flow.events.empty()) next = std::min(next, now_ + flow.left / flow.rate);
    return next;
  }

  void advance_to(double time) {
    for (auto& [pair, flow] : flows_)
      if (!flow.events.empty()) flow.left -= (time - now_) * flow.rate;
    now_ = time;
    for (auto& [pair, flow] : flows_)
      while (!flow.events.empty() &&
             flow.left <= kDone * (1 + now_ + walk_.seconds[index(flow.events.front())]))
        finish(flow);
    share();
  }

  void finish(Flow& flow) {
    const int event = flow.events.front();
    const Event& e = program_.events[index(event)];
    flow.events.pop();
    walk_.end[index(event)] = now_;
    const bool is_message = e.kind == EventKind::message;
    note_end(now_ + (is_message ? costs_.latency : 0));
    if (is_message && awaits_[index(e.peer)] == event) {
      awaits_[index(e.peer)] = kNone;
      wake_[index(e.peer)] = now_;
    }
    if (!flow.events.empty()) start(flow);
  }

  const EventProgram& program_;
  const Costs& costs_;
  Walk walk_;
  double now_ = 0;
  std::vector<std::size_t> at_;  // by rank: its next step
  std::vector<double> wake_;     // by rank: when it goes on; never: when its message comes, or done
  std::vector<int> awaits_;      // by rank: that message
  std::map<std::pair<int, int>, Flow> flows_;  // by sender and receiver
};

}  // namespace

Walk flow(const EventProgram& program, const Costs& costs) {
  return FlowWalker(program, costs).run();
}

}  // namespace laconic::part
