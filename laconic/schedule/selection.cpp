// Which gradients, and which ranks' sums, are worth encoding.
//
// critical. Let T(S) be the makespan when the messages of a set S are encoded. A
// begin is a maximum of sums of seconds (discrete_event.cpp), so as long as wires
// serve messages in the same order T can only fall when a message gets shorter:
// T(all that are shorter encoded) is the least there is. select() comes to it from
// both sides.
//
//   Up: encode every gradient without slack, and simulate again, until none
//   without slack could be made shorter. Then a critical path has nothing left to
//   shorten, and encoding more would not help: T(S) = T(all).
//
//   Down: a gradient can travel raw if its slack is at least the seconds that
//   this adds. Two that could do it each may share their slack, so batches of them
//   are tried, and halved when the step gets longer. A raw message leaves the
//   others no more slack than before: what was needed once stays needed, and what
//   is left at the end cannot be spared.
//
// Where the order on a wire depends on what is encoded (half duplex, asynchronous)
// T may rise instead. Then S is only nearly the least, but `longest` sees to it
// that taking back never makes the step longer than the first half found.
// S is `costs_.encoded`; equal times are those within kTolerance of the makespan.
//
// ranks_worth_encoding(). When ranks 0 ... k - 1 encode their sums, rank r ends them
//
//     (r < k ? encoded[r] : exact[r]) - slack[r]
//
// after the last rank's computation, and the step at the largest of these
// (end_of_sums). It is asked for k = 0, 1, ... until that is no later than for all.
#include "laconic/schedule/selection.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/base/text.hpp"
#include "laconic/schedule/discrete_event.hpp"

namespace laconic {

namespace {

// A share of the makespan. Sums of some hundred thousand terms in double are far closer than this.
constexpr double kTolerance = 1e-9;

GradientSends none_of(const PipelineShape& shape) {
  return GradientSends(index(edge_count(shape)), std::vector<bool>(index(shape.microbatches)));
}

// A gradient that stage s sends travels over the edge into stage s - 1.
void select(GradientSends& sends, const Action& send) {
  sends[index(send.stage - 1)][index(send.microbatch)] = true;
}

GradientSends select_always(const Schedule& lowered) {
  GradientSends sends = none_of(lowered.shape);
  for (const auto& actions : lowered.by_rank)
    for (const Action& action : actions)
      if (action.op == Op::send_gradient) select(sends, action);
  return sends;
}

// Goes through each list from its end: `senders` are the ranks that still have an activation to
// send to this one.
GradientSends select_epilogue(const Schedule& lowered) {
  GradientSends sends = none_of(lowered.shape);
  for (const auto& actions : lowered.by_rank) {
    std::set<int> senders;
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      const bool is_message = action->op == Op::recv_activation || action->op == Op::send_gradient;
      if (!is_message) continue;
      const int peer = rank_of_stage(lowered, action->stage - 1);
      if (action->op == Op::recv_activation)
        senders.insert(peer);
      else if (!senders.contains(peer))
        select(sends, *action);
    }
  }
  return sends;
}

struct Seconds {
  double raw = 0;
  double encoded = 0;
};

Seconds seconds_of(const Action& gradient, const Costs& costs) {
  if (costs.edges.empty()) return {};
  const EdgeCost& edge = costs.edges[costs.edges.size() == 1 ? 0 : index(gradient.stage - 1)];
  return {edge.gradient, edge.encoded_gradient};
}

class CriticalPath {
 public:
  CriticalPath(const Schedule& lowered, Costs costs)
      : program_(part::compile(lowered, costs.exchange)), costs_(std::move(costs)) {
    costs_.encoded = none_of(lowered.shape);
  }

  GradientSends select() {
    while (encode_critical()) {
    }
    const part::Walk best = part::walk(program_, costs_);
    take_back(spare_of(best), (1 + kTolerance) * best.last_end);
    return std::move(costs_.encoded);
  }

 private:
  // False: there was nothing left to encode.
  bool encode_critical() {
    const part::Walk walk = part::walk(program_, costs_);
    const std::vector<double> slack = part::slack_of_events(program_, walk, costs_);
    bool has_changed = false;
    for (std::size_t i = 0; i < slack.size(); ++i) {
      const Action& action = program_.events[i].action;
      if (action.op != Op::send_gradient || slack[i] > kTolerance * walk.last_end) continue;
      if (encoded(action) || seconds_of(action, costs_).encoded >= walk.seconds[i]) continue;
      has_changed = encoded(action) = true;
    }
    return has_changed;
  }

  // Finds those that each could travel raw; maybe not all at once.
  std::vector<Action> spare_of(const part::Walk& walk) {
    const std::vector<double> slack = part::slack_of_events(program_, walk, costs_);
    std::vector<Action> spare;
    for (std::size_t i = 0; i < slack.size(); ++i) {
      const Action& action = program_.events[i].action;
      if (action.op != Op::send_gradient || !encoded(action)) continue;
      const Seconds seconds = seconds_of(action, costs_);
      if (slack[i] >= seconds.raw - seconds.encoded - kTolerance * walk.last_end)
        spare.push_back(action);
    }
    std::ranges::stable_sort(spare, {}, &Action::microbatch);
    return spare;
  }

  // Lets as many at once travel raw as goes well.
  void take_back(std::vector<Action> spare, double longest) {
    std::size_t batch = spare.size();
    while (!spare.empty()) {
      batch = std::clamp<std::size_t>(batch, 1, spare.size());
      const auto end = spare.begin() + static_cast<std::ptrdiff_t>(batch);
      for (auto send = spare.begin(); send != end; ++send) encoded(*send) = false;
      const part::Walk walk = part::walk(program_, costs_);
      if (walk.last_end <= longest) {
        spare = spare_of(walk);
        batch *= 2;
        continue;
      }
      for (auto send = spare.begin(); send != end; ++send) encoded(*send) = true;
      if (batch == 1) spare.erase(spare.begin());  // the order on a wire has changed
      batch /= 2;
    }
  }

  std::vector<bool>::reference encoded(const Action& send) {
    return costs_.encoded[index(send.stage - 1)][index(send.microbatch)];
  }

  part::EventProgram program_;
  Costs costs_;
};

double end_of_sums(const std::vector<double>& slack, const std::vector<double>& exact,
                   const std::vector<double>& encoded, std::size_t ranks_encoded) {
  double end = 0;
  for (std::size_t rank = 0; rank < slack.size(); ++rank)
    end = std::max(end, (rank < ranks_encoded ? encoded[rank] : exact[rank]) - slack[rank]);
  return end;
}

}  // namespace

std::string_view name_of(When when) {
  return name_in(kWhenNames, when);
}

When parse_when(std::string_view name) {
  if (const auto when = value_in(kWhenNames, name)) return *when;
  throw ConfigError("'" + printable(name) + "' does not say when: there are " +
                    join(names_in(kWhenNames), ", "));
}

GradientSends select_gradient_sends(const Schedule& lowered, When when, const Costs& costs) {
  switch (when) {
    case When::always: return select_always(lowered);
    case When::epilogue: return select_epilogue(lowered);
    case When::critical: return CriticalPath(lowered, costs).select();
    case When::never: break;
  }
  return none_of(lowered.shape);
}

std::vector<double> slack_of_ranks(const Schedule& lowered, const Costs& costs) {
  Costs without_sums = costs;
  for (StageCost& stage : without_sums.stages) stage.reduction = 0;
  std::vector<double> slack = estimate(lowered, without_sums).compute_end;
  const double last = std::ranges::max(slack);
  for (double& end : slack) end = last - end;
  return slack;
}

int ranks_worth_encoding(const std::vector<double>& slack, const std::vector<double>& exact,
                         const std::vector<double>& encoded) {
  const double all = end_of_sums(slack, exact, encoded, slack.size());
  std::size_t ranks = 0;
  while (end_of_sums(slack, exact, encoded, ranks) > all + kTolerance * std::abs(all)) ++ranks;
  return static_cast<int>(ranks);
}

}  // namespace laconic
