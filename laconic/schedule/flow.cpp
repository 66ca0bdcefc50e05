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
// Rates change only when a message begins or ends, and only those of flows that
// share its sender or its receiver; what others have `left` is as it was `since`
// their own last change. So a change costs what touches two ranks, however many
// there are, and time jumps from one to the next: the earliest end of a flow, or
// the earliest rank that goes on. Its end is known only when it is there, so that
// slack is not computed here.
#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "laconic/base/index.hpp"
#include "laconic/schedule/discrete_event.hpp"

namespace laconic::part {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDone = 1e-12;  // the share of a message that rounding may leave

// The messages of an ordered pair; a rank's sums are a flow to nobody.
struct Flow {
  int from = 0, to = kNone;
  std::queue<int> events;  // the first is under way
  double left = 0;         // seconds of it at full rate, at `since`
  double since = 0;
  double rate = 0;
  int changes = 0;  // of `rate` and `left`
};

// An end that a flow or a rank is to come to; not valid any more where it has changed since.
struct Ahead {
  double time = 0;
  int index = 0;
  int changes = 0;
  bool operator>(const Ahead& other) const {
    return std::tie(time, index) > std::tie(other.time, other.index);
  }
};
using Queue = std::priority_queue<Ahead, std::vector<Ahead>, std::greater<>>;

class FlowWalker {
 public:
  FlowWalker(const EventProgram& program, const Costs& costs)
      : program_(program),
        costs_(costs),
        at_(program.by_rank.size(), 0),
        wake_(program.by_rank.size(), 0),
        awaits_(program.by_rank.size(), kNone),
        ends_(program.by_rank.size()) {
    for (const Event& event : program.events)
      walk_.seconds.push_back(seconds_of_event(costs, event));
    walk_.begin.assign(program.events.size(), 0);
    walk_.end.assign(program.events.size(), kNever);
  }

  Walk run() {
    for (std::size_t rank = 0; rank < at_.size(); ++rank) awake_.push_back(static_cast<int>(rank));
    for (double next = 0; next < kNever; next = next_change()) {
      now_ = next;
      finish_flows();
      wake_ranks();
      share();
    }
    for (std::size_t rank = 0; rank < at_.size(); ++rank)
      walk_.stuck_at.push_back(
          at_[rank] == program_.by_rank[rank].size() ? kNone : static_cast<int>(at_[rank]));
    return std::move(walk_);
  }

 private:
  // One end of flows: which are under way here.
  struct End {
    std::vector<int> out, in;
  };

  void wake_ranks() {
    while (!sleepers_.empty() && sleepers_.top().time <= now_) {
      awake_.push_back(sleepers_.top().index);
      sleepers_.pop();
    }
    for (const int rank : awake_)
      while (wake_[index(rank)] <= now_ && act(rank)) {
      }
    awake_.clear();
  }

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

  // What ends now, ends at once.
  bool sleep(int rank, double until) {
    wake_[index(rank)] = until;
    if (until <= now_) return true;
    if (until < kNever) sleepers_.push({until, rank, 0});
    return false;
  }

  void note_end(double end) { walk_.last_end = std::max(walk_.last_end, end); }

  // --- flows

  void begin(int event) {
    const Event& e = program_.events[index(event)];
    const auto [found, is_new] =
        flow_of_.try_emplace({e.rank, e.peer}, static_cast<int>(flows_.size()));
    if (is_new) flows_.push_back({.from = e.rank, .to = e.peer, .events = {}});
    Flow& flow = flows_[index(found->second)];
    flow.events.push(event);
    if (flow.events.size() > 1) return;
    ends_[index(flow.from)].out.push_back(found->second);
    if (flow.to != kNone) ends_[index(flow.to)].in.push_back(found->second);
    start(found->second);
  }

  void start(int number) {
    Flow& flow = flows_[index(number)];
    walk_.begin[index(flow.events.front())] = now_;
    flow.left = walk_.seconds[index(flow.events.front())];
    flow.since = now_;
    flow.rate = 0;
    touch(flow);
  }

  // All flows at its two ends get other shares before time goes on.
  void touch(const Flow& flow) {
    touched_.push_back(flow.from);
    if (flow.to != kNone) touched_.push_back(flow.to);
  }

  void share() {
    for (const int rank : touched_) {
      for (const int flow : ends_[index(rank)].out) share(flow);
      for (const int flow : ends_[index(rank)].in) share(flow);
    }
    touched_.clear();
  }

  void share(int number) {
    Flow& flow = flows_[index(number)];
    const std::size_t out = ends_[index(flow.from)].out.size(),
                      in = flow.to == kNone ? 1 : ends_[index(flow.to)].in.size();
    const double rate = 1.0 / static_cast<double>(std::max(out, in));
    if (rate == flow.rate) return;
    flow.left -= (now_ - flow.since) * flow.rate;
    flow.since = now_;
    flow.rate = rate;
    moving_.push({now_ + flow.left / rate, number, ++flow.changes});
  }

  double next_change() {
    while (!moving_.empty() && is_over(moving_.top())) moving_.pop();
    return std::min(moving_.empty() ? kNever : moving_.top().time,
                    sleepers_.empty() ? kNever : sleepers_.top().time);
  }

  bool is_over(const Ahead& end) const { return flows_[index(end.index)].changes != end.changes; }

  // All that end now, or would if nothing were rounded.
  void finish_flows() {
    while (!moving_.empty()) {
      const Ahead end = moving_.top();
      if (!is_over(end)) {
        Flow& flow = flows_[index(end.index)];
        const double left = flow.left - (now_ - flow.since) * flow.rate;
        if (left > kDone * (1 + now_ + walk_.seconds[index(flow.events.front())])) return;
        finish(end.index);
      }
      moving_.pop();
    }
  }

  void finish(int number) {
    Flow& flow = flows_[index(number)];
    const int event = flow.events.front();
    const Event& e = program_.events[index(event)];
    flow.events.pop();
    ++flow.changes;
    walk_.end[index(event)] = now_;
    const bool is_message = e.kind == EventKind::message;
    note_end(now_ + (is_message ? costs_.latency : 0));
    if (is_message && awaits_[index(e.peer)] == event) {
      awaits_[index(e.peer)] = kNone;
      wake_[index(e.peer)] = now_;
      awake_.push_back(e.peer);
    }
    if (!flow.events.empty()) return start(number);
    std::erase(ends_[index(flow.from)].out, number);
    if (flow.to != kNone) std::erase(ends_[index(flow.to)].in, number);
    touch(flow);
  }

  const EventProgram& program_;
  const Costs& costs_;
  Walk walk_;
  double now_ = 0;
  std::vector<std::size_t> at_;  // by rank: its next step
  std::vector<double> wake_;     // by rank: when it goes on; never: when its message comes, or done
  std::vector<int> awaits_;      // by rank: that message
  std::vector<int> awake_;       // ranks that go on now
  Queue sleepers_;
  std::map<std::pair<int, int>, int> flow_of_;  // by sender and receiver
  std::vector<Flow> flows_;
  std::vector<End> ends_;     // by rank
  std::vector<int> touched_;  // ranks whose flows have become more or fewer
  Queue moving_;              // ends of flows
};

}  // namespace

Walk flow(const EventProgram& program, const Costs& costs) {
  return FlowWalker(program, costs).run();
}

}  // namespace laconic::part
