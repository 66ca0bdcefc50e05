// A schedule is proved in two steps. First what each rank can see in its own list: every action
// once, after what it needs on the same rank, and messages of an edge in the order in which the
// other end sends them. What is left are waits between ranks: all lists are walked at once, where
// only receives wait. Since sends do not, the order of the walk cannot matter: what can be reached
// in one order can be reached in all.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "laconic/base/index.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/schedule_fault.hpp"

namespace laconic {

namespace {

// --- what must hold before anything can be looked up

std::optional<std::string> fault_of_shape(const Schedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  if (shape.ranks < 1 || schedule.by_rank.size() != index(shape.ranks))
    return fmt::format("{} lists for {} ranks", schedule.by_rank.size(), shape.ranks);
  if (shape.stages < 1 || shape.stages % shape.ranks != 0)
    return fmt::format("{} stages are no multiple of {} ranks", shape.stages, shape.ranks);
  if (shape.microbatches < 1) return fmt::format("{} microbatches", shape.microbatches);
  return std::nullopt;
}

std::optional<std::string> fault_of_place(const Schedule& schedule, int rank,
                                          const Action& action) {
  const PipelineShape& shape = schedule.shape;
  if (action.stage < 0 || action.stage >= shape.stages)
    return fmt::format("there is no stage {} among {}", action.stage, shape.stages);
  if (rank_of_stage(schedule, action.stage) != rank)
    return fmt::format("stage {} lives on rank {}", action.stage,
                       rank_of_stage(schedule, action.stage));
  const int microbatches = has_microbatch(action.op) ? shape.microbatches : 1;
  if (action.microbatch < 0 || action.microbatch >= microbatches)
    return fmt::format("there is no microbatch {} among {}", action.microbatch, microbatches);
  return std::nullopt;
}

std::vector<Fault> faults_before_all(const Schedule& schedule) {
  if (auto what = fault_of_shape(schedule)) return {{kWholeSchedule, kNowhere, *what}};
  std::vector<Fault> faults;
  for (Problem& p : check(schedule.placement, schedule.shape.ranks, schedule.shape.stages))
    faults.push_back({kWholeSchedule, kNowhere, std::move(p.what)});
  if (!faults.empty()) return faults;
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    const auto& list = schedule.by_rank[index(rank)];
    for (std::size_t i = 0; i < list.size(); ++i)
      if (auto what = fault_of_place(schedule, rank, list[i])) faults.push_back({rank, i, *what});
  }
  return faults;
}

// --- who needs what

// The edge before the message's stage or after it.
int edge_of(const Action& message) {
  const bool is_before = message.op == Op::recv_activation || message.op == Op::send_gradient;
  return is_before ? message.stage - 1 : message.stage;
}

// What the other end of a message's edge does with it.
Action counterpart(const Action& message) {
  switch (message.op) {
    case Op::send_activation: return {Op::recv_activation, message.stage + 1, message.microbatch};
    case Op::recv_activation: return {Op::send_activation, message.stage - 1, message.microbatch};
    case Op::send_gradient: return {Op::recv_gradient, message.stage - 1, message.microbatch};
    default: return {Op::send_gradient, message.stage + 1, message.microbatch};
  }
}

bool is_receive(Op op) {
  return op == Op::recv_activation || op == Op::recv_gradient;
}

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : given_(schedule),
        walked_(with_communication(schedule)),
        shape_(schedule.shape),
        with_stage_(names_stages(schedule)),
        is_completed_(walked_ != given_) {
    find_places();
  }

  std::vector<Fault> run() {
    for (int stage = 0; stage < shape_.stages; ++stage) check_stage(stage);
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      check_prefetch(rank);
      for (std::size_t i = 0; i < list(rank).size(); ++i) check_needs(rank, i);
    }
    for (int edge = 0; edge < edge_count(shape_); ++edge)
      for (const Op op : {Op::recv_activation, Op::recv_gradient}) check_order(edge, op);
    walk();
    std::ranges::sort(faults_);
    return std::move(faults_);
  }

 private:
  // --- tables

  const std::vector<Action>& list(int rank) const { return walked_.by_rank[index(rank)]; }

  // Where each action stands, and the place in the given list of each in the walked one: messages
  // that were added stand at what they are for.
  void find_places() {
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      std::size_t given = 0;
      given_at_.emplace_back();
      for (std::size_t i = 0; i < list(rank).size(); ++i) {
        const Action& action = list(rank)[i];
        const bool is_added = is_completed_ && is_message(action.op);
        given_at_.back().push_back(is_added && !is_receive(action.op) ? given - 1 : given);
        if (!is_added) ++given;
        const bool is_new = place_.try_emplace(action, i).second;
        if (!is_new && !is_added)
          fault(rank, i,
                fmt::format("is there twice, first as action {}",
                            given_at_.back()[place_.at(action)]));
      }
    }
  }

  bool has(const Action& action) const { return place_.contains(action); }
  Action backward_of(int stage, int microbatch) const {
    const Action whole{Op::backward, stage, microbatch};
    return has(whole) ? whole : Action{Op::backward_input, stage, microbatch};
  }

  std::set<int> microbatches_of(Op op, int stage) const {
    std::set<int> found;
    for (auto at = place_.lower_bound({op, stage, 0});
         at != place_.end() && at->first.op == op && at->first.stage == stage; ++at)
      found.insert(at->first.microbatch);
    return found;
  }

  // --- every action once

  void check_stage(int stage) {
    const std::set<int> whole = microbatches_of(Op::backward, stage);
    const std::set<int> inputs = microbatches_of(Op::backward_input, stage);
    const std::set<int> weights = microbatches_of(Op::backward_weight, stage);
    std::set<int> halves = inputs, backwards = whole;
    halves.insert(weights.begin(), weights.end());
    backwards.insert(halves.begin(), halves.end());

    check_complete(Op::forward, stage, microbatches_of(Op::forward, stage));
    check_complete(Op::backward, stage, backwards);
    for (const int k : halves) check_halves(stage, k);
    for (const Op op :
         {Op::send_activation, Op::recv_activation, Op::send_gradient, Op::recv_gradient})
      if (!is_completed_ && crosses_ranks(given_, edge_of({op, stage, 0})))
        check_complete(op, stage, microbatches_of(op, stage));
  }

  // Runs of missing microbatches are one fault each: a wrong digit may leave out thousands.
  void check_complete(Op op, int stage, std::set<int> there) {
    there.insert(shape_.microbatches);
    int next = 0;
    for (const int k : there) {
      if (next < k) missing({op, stage, next}, {op, stage, k - 1});
      next = k + 1;
    }
  }

  void check_halves(int stage, int k) {
    const Action whole{Op::backward, stage, k}, input{Op::backward_input, stage, k},
        weight{Op::backward_weight, stage, k};
    for (const Action& half : {input, weight})
      if (has(whole) && has(half))
        fault_at(half, fmt::format("{} is there as well", described(whole)));
    if (has(whole)) return;
    for (const Action& half : {input, weight})
      if (!has(half)) missing(half, half);
  }

  void check_prefetch(int rank) {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < list(rank).size(); ++i) {
      if (list(rank)[i].op != Op::prefetch) continue;
      if (first && list(rank)[i] != list(rank)[*first])
        fault(rank, i,
              fmt::format("a rank has one P, which is action {} already",
                          given_at_[index(rank)][*first]));
      if (!first) first = i;
    }
  }

  // --- after what it needs on its rank

  std::vector<Action> needs_of(const Action& a) const {
    const int before = a.stage - 1, after = a.stage + 1, k = a.microbatch;
    std::vector<Action> needs;
    switch (a.op) {
      case Op::forward:
        if (crosses_ranks(given_, before)) return {{Op::recv_activation, a.stage, k}};
        if (before >= 0) return {{Op::forward, before, k}};
        return {};
      case Op::backward:
      case Op::backward_input:
        needs.push_back({Op::forward, a.stage, k});
        if (crosses_ranks(given_, a.stage))
          needs.push_back({Op::recv_gradient, a.stage, k});
        else if (after < shape_.stages)
          needs.push_back(backward_of(after, k));
        return needs;
      case Op::backward_weight: return {{Op::backward_input, a.stage, k}};
      case Op::send_activation: return {{Op::forward, a.stage, k}};
      case Op::send_gradient: return {backward_of(a.stage, k)};
      case Op::recv_activation:
      case Op::recv_gradient:
      case Op::prefetch: return {};
    }
    return {};
  }

  void check_needs(int rank, std::size_t at) {
    const Action& action = list(rank)[at];
    if (is_message(action.op) && !crosses_ranks(given_, edge_of(action)))
      fault(rank, at,
            fmt::format("no other rank has the stage {} stage {}",
                        edge_of(action) < action.stage ? "before" : "after", action.stage));
    for (const Action& need : needs_of(action))
      if (has(need) && place_.at(need) > at)
        fault(rank, at, fmt::format("comes before {}, which it needs", described(need)));
  }

  // --- messages of an edge in one order at both ends

  std::vector<Action> sequence(int rank, Op op, int stage) const {
    std::vector<Action> found;
    std::ranges::copy_if(list(rank), std::back_inserter(found), [&](const Action& action) {
      return action.op == op && action.stage == stage && has(counterpart(action));
    });
    return found;
  }

  void check_order(int edge, Op op) {
    if (!crosses_ranks(given_, edge)) return;
    const Action any{op, op == Op::recv_activation ? edge + 1 : edge, 0};
    const auto taken = sequence(rank_of_stage(given_, any.stage), op, any.stage);
    const Action other = counterpart(any);
    const auto sent = sequence(rank_of_stage(given_, other.stage), other.op, other.stage);
    for (std::size_t i = 0; i < std::min(taken.size(), sent.size()); ++i)
      if (counterpart(sent[i]) != taken[i])
        return fault_at(taken[i], fmt::format("is taken where {} comes, {}", spoken(sent[i]),
                                              described_on_its_rank(sent[i])));
  }

  // --- waits between ranks

  void walk() {
    std::vector<std::size_t> at(index(shape_.ranks), 0);
    const auto is_sent = [&](const Action& receive) {
      const Action send = counterpart(receive);
      return has(send) && place_.at(send) < at[index(rank_of_stage(given_, send.stage))];
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < shape_.ranks; ++rank)
        for (std::size_t& i = at[index(rank)]; i < list(rank).size(); ++i, moved = true)
          if (is_receive(list(rank)[i].op) && crosses_ranks(given_, edge_of(list(rank)[i])) &&
              !is_sent(list(rank)[i]))
            break;
    }
    for (int rank = 0; rank < shape_.ranks; ++rank)
      if (at[index(rank)] < list(rank).size()) report_wait(rank, at);
  }

  void report_wait(int rank, const std::vector<std::size_t>& at) {
    const std::size_t here = at[index(rank)];
    const Action send = counterpart(list(rank)[here]);
    const int peer = rank_of_stage(given_, send.stage);
    if (!has(send))
      return fault(rank, here,
                   fmt::format("waits for {}, which rank {} never sends", spoken(send), peer));
    fault(rank, here,
          fmt::format("waits for {}; that rank waits at {}", described_on_its_rank(send),
                      described(list(peer)[at[index(peer)]])));
  }

  // --- words. Positions and actions are those of the list that was given.

  std::string spoken(const Action& action) const { return to_text(action, with_stage_); }

  std::string described(const Action& action) const {
    const int rank = rank_of_stage(given_, action.stage);
    const std::size_t at = given_at_[index(rank)][place_.at(action)];
    return fmt::format("action {} ({})", at, spoken(given_.by_rank[index(rank)][at]));
  }

  std::string described_on_its_rank(const Action& action) const {
    return fmt::format("rank {}, {}", rank_of_stage(given_, action.stage), described(action));
  }

  void fault(int rank, std::size_t at, std::string what) {
    faults_.push_back({rank, given_at_[index(rank)][at], std::move(what)});
  }
  void fault_at(const Action& action, std::string what) {
    fault(rank_of_stage(given_, action.stage), place_.at(action), std::move(what));
  }
  void missing(const Action& first, const Action& last) {
    const std::string what =
        first == last ? spoken(first) + " is missing"
                      : fmt::format("{} ... {} are missing", spoken(first), spoken(last));
    faults_.push_back({rank_of_stage(given_, first.stage), kNowhere, what});
  }

  const Schedule& given_;
  const Schedule walked_;  // with messages
  const PipelineShape shape_;
  const bool with_stage_;
  const bool is_completed_;                         // messages are not those of a file
  std::map<Action, std::size_t> place_;             // the first, in the walked list of its rank
  std::vector<std::vector<std::size_t>> given_at_;  // by rank and place in the walked list
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> faults_of(const Schedule& schedule) {
  std::vector<Fault> faults = faults_before_all(schedule);
  return faults.empty() ? Checker(schedule).run() : faults;
}

}  // namespace laconic
