// compile(): numbers the events of a schedule and lists each rank's steps.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "laconic/base/index.hpp"
#include "laconic/schedule/discrete_event.hpp"

namespace laconic::part {

namespace {

bool is_send(Op op) {
  return op == Op::send_activation || op == Op::send_gradient;
}
bool is_receive(Op op) {
  return op == Op::recv_activation || op == Op::recv_gradient;
}

// The edge after its stage for activations that leave and gradients that come, else the one before.
int edge_of(const Action& message) {
  const bool is_behind = message.op == Op::send_activation || message.op == Op::recv_gradient;
  return is_behind ? message.stage : message.stage - 1;
}

int peer_of(const Schedule& schedule, const Action& message) {
  const int edge = edge_of(message);
  return rank_of_stage(schedule, message.stage == edge ? edge + 1 : edge);
}

// A number for each message that could be, the same for its send and its receive.
std::size_t slot_of(const PipelineShape& shape, const Action& message) {
  const bool is_gradient = message.op == Op::send_gradient || message.op == Op::recv_gradient;
  return index((2 * edge_of(message) + (is_gradient ? 1 : 0)) * shape.microbatches +
               message.microbatch);
}

class Compiler {
 public:
  Compiler(const Schedule& schedule, Exchange exchange) : schedule_(schedule), exchange_(exchange) {
    const std::size_t slots = index(2 * edge_count(shape()) * shape().microbatches);
    message_.assign(slots, kNone);
    sent_at_.assign(slots, kNone);
    taken_at_.assign(slots, kNone);
  }

  EventProgram compile() {
    program_.shape = shape();
    program_.by_rank.resize(schedule_.by_rank.size());
    number(is_compute, EventKind::compute);
    number(is_send, EventKind::message);
    for (int rank = 0; rank < shape().ranks; ++rank) number_reductions(rank);
    if (exchange_ == Exchange::paired) find_meetings();
    for (int rank = 0; rank < shape().ranks; ++rank) list_steps(rank);
    return std::move(program_);
  }

 private:
  const PipelineShape& shape() const { return schedule_.shape; }
  const std::vector<Action>& actions(int rank) const { return schedule_.by_rank[index(rank)]; }

  template <class Wanted>
  void number(Wanted wanted, EventKind kind) {
    event_at_.resize(schedule_.by_rank.size());
    for (int rank = 0; rank < shape().ranks; ++rank) {
      event_at_[index(rank)].resize(actions(rank).size(), kNone);
      for (std::size_t i = 0; i < actions(rank).size(); ++i)
        if (wanted(actions(rank)[i].op)) add_event(kind, rank, i);
    }
  }

  void add_event(EventKind kind, int rank, std::size_t at) {
    const Action& action = actions(rank)[at];
    const int event = static_cast<int>(program_.events.size());
    const bool is_message = kind == EventKind::message;
    program_.events.push_back({kind, action, rank});
    event_at_[index(rank)][at] = event;
    if (!is_message) return;
    const int peer = peer_of(schedule_, action);
    program_.events.back().peer = peer;
    program_.events.back().wire = wire_between(rank, peer);
    message_[slot_of(shape(), action)] = event;
  }

  // After the action that completes a stage's gradients, and after the message beside it, for which
  // another rank waits.
  void number_reductions(int rank) {
    const std::vector<Action>& list = actions(rank);
    std::map<int, std::size_t> completed;  // by stage
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].op == Op::backward || list[i].op == Op::backward_weight)
        completed[list[i].stage] = i;
    std::vector<int>& after = reduction_after_.emplace_back(list.size(), kNone);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto at = completed.find(list[i].stage);
      if (at == completed.end() || at->second != i) continue;
      const bool is_sent = i + 1 < list.size() && list[i + 1].op == Op::send_gradient &&
                           list[i + 1].stage == list[i].stage;
      after[is_sent ? i + 1 : i] = static_cast<int>(program_.events.size());
      program_.events.push_back({EventKind::reduction, list[i], rank});
    }
  }

  int wire_between(int from, int to) {
    const auto [pair, is_new] =
        wire_of_pair_.try_emplace({std::min(from, to), std::max(from, to)}, program_.wires);
    if (is_new) program_.wires += 2;
    return pair->second + (from < to ? 0 : 1);
  }

  // A send and a receive that are neighbours in the lists of both ranks are exchanged; everything
  // else meets alone. (Neighbours in one list only are no pair: one side would wait for what the
  // other does before it gets there.) P takes no time of the rank and separates nothing.
  void find_meetings() {
    meeting_.assign(message_.size(), kNone);
    std::vector<std::vector<Action>> dense = schedule_.by_rank;
    for (std::vector<Action>& list : dense) {
      std::erase_if(list, [](const Action& action) { return action.op > Op::recv_gradient; });
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (is_send(list[i].op)) sent_at_[slot_of(shape(), list[i])] = static_cast<int>(i);
        if (is_receive(list[i].op)) taken_at_[slot_of(shape(), list[i])] = static_cast<int>(i);
      }
    }
    for (const std::vector<Action>& list : dense)
      for (std::size_t i = 0; i + 1 < list.size(); ++i) join_neighbours(list[i], list[i + 1]);
    for (std::size_t slot = 0; slot < message_.size(); ++slot)
      if (message_[slot] != kNone && meeting_[slot] == kNone) add_meeting({slot});
    last_lister_.assign(program_.meetings.size(), kNone);
  }

  void join_neighbours(const Action& a, const Action& b) {
    const bool is_pair = (is_send(a.op) && is_receive(b.op)) || (is_receive(a.op) && is_send(b.op));
    if (!is_pair || peer_of(schedule_, a) != peer_of(schedule_, b)) return;
    const std::size_t sent = slot_of(shape(), is_send(a.op) ? a : b);
    const std::size_t taken = slot_of(shape(), is_send(a.op) ? b : a);
    if (meeting_[sent] != kNone || meeting_[taken] != kNone) return;
    if (std::abs(taken_at_[sent] - sent_at_[taken]) == 1) add_meeting({sent, taken});
  }

  void add_meeting(const std::vector<std::size_t>& slots) {
    PairedExchange meeting;
    for (const std::size_t slot : slots) {
      meeting_[slot] = static_cast<int>(program_.meetings.size());
      meeting.messages.push_back(message_[slot]);
    }
    std::ranges::sort(meeting.messages, {}, [this](int event) { return rank_of(event); });
    const Event& first = program_.events[index(meeting.messages[0])];
    meeting.ranks = {first.rank, first.peer};
    program_.meetings.push_back(std::move(meeting));
  }
  int rank_of(int event) const { return program_.events[index(event)].rank; }

  void list_steps(int rank) {
    std::vector<Step>& steps = program_.by_rank[index(rank)];
    for (std::size_t i = 0; i < actions(rank).size(); ++i) {
      const Action& action = actions(rank)[i];
      const int at = static_cast<int>(i), event = event_at_[index(rank)][i];
      if (is_compute(action.op)) steps.push_back({StepKind::compute, event, at});
      if (is_message(action.op)) add_message_step(rank, action, at);
      const int reduction = reduction_after_[index(rank)][i];
      if (reduction != kNone) steps.push_back({StepKind::reduce, reduction, at});
    }
  }

  // The first of an exchange's two actions enters it; the second is no step.
  void add_message_step(int rank, const Action& action, int at) {
    const std::size_t slot = slot_of(shape(), action);
    std::vector<Step>& steps = program_.by_rank[index(rank)];
    if (exchange_ == Exchange::asynchronous) {
      const StepKind kind = is_send(action.op) ? StepKind::send : StepKind::receive;
      steps.push_back({kind, message_[slot], at});
    } else if (std::exchange(last_lister_[index(meeting_[slot])], rank) != rank) {
      steps.push_back({StepKind::meet, meeting_[slot], at});
    }
  }

  const Schedule& schedule_;
  Exchange exchange_;
  EventProgram program_;
  std::vector<std::vector<int>> event_at_;         // by rank and position
  std::vector<std::vector<int>> reduction_after_;  // by rank and position, or kNone
  // By slot.
  std::vector<int> message_, sent_at_, taken_at_, meeting_;
  std::vector<int> last_lister_;  // by meeting: the rank whose steps have it already
  std::map<std::pair<int, int>, int> wire_of_pair_;  // by ranks, the lower first: from that one
};

}  // namespace

EventProgram compile(const Schedule& lowered, Exchange exchange) {
  return Compiler(lowered, exchange).compile();
}

}  // namespace laconic::part
