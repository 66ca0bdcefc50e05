// A loop over three sources of events: flows that end, work that ends on shared cores, and times
// that are known beforehand (work on cores of one's own, latency). Everything that becomes possible
// at one time is done before rates are computed anew.
//
// Shared cores need no event for each change: with k workers busy on c cores all advance at
// min(1, c / k), so that a processor has a clock of its own (`work_clock`), which runs at that
// rate; what has w seconds to do ends when it shows w more. So the order of ends never changes.
#include "laconic/simulate/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <stdexcept>
#include <unordered_map>

#include "laconic/base/index.hpp"

namespace laconic {

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kSameTime = 1e-12;  // relative: events that rounding alone sets apart
constexpr int kNobody = -1;

// What a worker has to do: an act of a strand, or handling of a message at one of its ends.
struct Task {
  enum class Kind : std::uint8_t { act, sending, receiving };
  Kind kind = Kind::act;
  int index = 0;
  double seconds = 0;
};

struct Order {
  std::uint64_t key = 0, sequence = 0;
  auto operator<=>(const Order&) const = default;
};

struct WorkerState {
  std::map<Order, Task> waiting;
  Task current;
  bool is_busy = false;
};

struct Timed {
  double time = 0;
  std::uint64_t sequence = 0;
  enum class Kind : std::uint8_t { work, arrival } kind = Kind::work;
  int index = 0;
  bool operator>(const Timed& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};
using TimedQueue = std::priority_queue<Timed, std::vector<Timed>, std::greater<>>;

struct ProcessorState {
  double cores = 1;
  double work_clock = 0, since = 0;
  int busy = 0;
  TimedQueue ends;  // by work_clock
  double rate() const { return busy == 0 ? 0 : std::min(1.0, cores / busy); }
};

struct OutboxState {
  int flow = kNobody;
  double latency = 0;
  int current = kNobody;  // message
  double burst = 0;       // bytes of it that are under way
  Order current_order;
  std::map<Order, int> waiting;
};

struct MessageState {
  double left = 0;  // bytes that no burst has taken
  int waiter = kNobody;
  double sent = kForever;
  bool is_begun = false, is_there = false;
};

struct StrandState {
  std::size_t at = 0;
  double since = 0;  // when it began to wait
  std::vector<int> joiners;
  bool is_started = false, is_done = false;
};

class Simulation {
 public:
  explicit Simulation(const RunProgram& program);
  RunTimes run();

 private:
  const Worker& worker_of(int strand) const {
    return program_.workers[index(program_.strands[index(strand)].worker)];
  }
  RankSpent& times_of(const Worker& worker) { return times_.ranks[index(worker.rank)]; }

  void start_strand(int strand);
  void proceed(int strand);
  bool act(int strand, const StrandAct& next);
  bool wait_for_message(int strand, int message);
  bool join(int strand, int other);
  void resume(int strand);
  void book_wait(int strand, const StrandAct& act);

  void give(int worker, std::uint64_t key, const Task& task);
  void begin_next(int worker);
  void end_work(int worker);
  void advance_clock(ProcessorState& processor);

  void send(int message);
  void enqueue(int message);
  void overtake(OutboxState& outbox);
  void begin_burst(int outbox);
  void end_burst(int outbox);
  void arrive(int message);

  double next_time();
  double next_of(const ProcessorState& processor) const;
  void take_events();
  [[noreturn]] void refuse_to_hang() const;

  const RunProgram& program_;
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  FairShare network_;
  TimedQueue timed_;
  std::vector<ProcessorState> processors_;
  std::vector<WorkerState> workers_;
  std::vector<StrandState> strands_;
  std::vector<MessageState> messages_;
  std::vector<OutboxState> outboxes_;
  std::vector<int> outbox_of_message_;
  std::vector<int> outbox_of_flow_;
  std::vector<int> ready_;  // strands
  std::vector<double> end_of_rank_;
  RunTimes times_;
};

Simulation::Simulation(const RunProgram& program)
    : program_(program),
      workers_(program.workers.size()),
      strands_(program.strands.size()),
      messages_(program.messages.size()),
      end_of_rank_(index(program.ranks), 0) {
  const NetworkMap& network = program.network;
  for (std::size_t link = 0; link < network.bytes_per_second.size(); ++link)
    network_.add_link(network.bytes_per_second[link],
                      network.burst_bytes.empty() ? 0 : network.burst_bytes[link]);
  for (const double cores : program.cores) processors_.push_back({.cores = cores, .ends = {}});
  times_.ranks.resize(index(program.ranks));
  times_.spans.resize(program.spans.size());
  times_.messages.resize(program.messages.size());
  std::unordered_map<std::uint64_t, int> by_pair;
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const ProgramMessage& message = program.messages[m];
    messages_[m].left = message.bytes;
    const std::uint64_t pair = static_cast<std::uint64_t>(message.from) << 36 |
                               static_cast<std::uint64_t>(message.to) << 8 |
                               static_cast<std::uint64_t>(message.way);
    const auto [found, is_new] = by_pair.try_emplace(pair, static_cast<int>(outboxes_.size()));
    if (is_new) {
      const Route route = route_between(program.network, message.from, message.to);
      outbox_of_flow_.push_back(static_cast<int>(outboxes_.size()));
      outboxes_.push_back(
          {.flow = network_.add_flow(route.path), .latency = route.latency, .waiting = {}});
    }
    outbox_of_message_.push_back(found->second);
  }
}

RunTimes Simulation::run() {
  for (std::size_t s = 0; s < strands_.size(); ++s)
    if (program_.strands[s].starts_alone) start_strand(static_cast<int>(s));
  while (true) {
    for (std::size_t at = 0; at < ready_.size(); ++at) proceed(ready_[at]);
    ready_.clear();
    network_.settle(now_);
    const double next = next_time();
    if (next == kForever) break;
    now_ = std::max(now_, next);
    take_events();
  }
  for (const StrandState& strand : strands_)
    if (!strand.is_done) refuse_to_hang();
  for (std::size_t rank = 0; rank < end_of_rank_.size(); ++rank)
    times_.ranks[rank].idle = times_.seconds - end_of_rank_[rank];
  for (std::size_t link = 0; link < program_.network.bytes_per_second.size(); ++link)
    times_.link_bytes.push_back(network_.carried(static_cast<int>(link)));
  return std::move(times_);
}

// --- strands

void Simulation::start_strand(int strand) {
  strands_[index(strand)].is_started = true;
  ready_.push_back(strand);
}

void Simulation::resume(int strand) {
  book_wait(strand, program_.strands[index(strand)].acts[strands_[index(strand)].at]);
  ++strands_[index(strand)].at;
  ready_.push_back(strand);
}

// Goes on until the strand has to wait for something.
void Simulation::proceed(int strand) {
  const std::vector<StrandAct>& acts = program_.strands[index(strand)].acts;
  StrandState& state = strands_[index(strand)];
  while (state.at < acts.size()) {
    state.since = now_;
    if (!act(strand, acts[state.at])) return;
    ++state.at;
  }
  state.is_done = true;
  times_.seconds = now_;
  if (worker_of(strand).is_main) end_of_rank_[index(worker_of(strand).rank)] = now_;
  for (const int joiner : state.joiners) resume(joiner);
}

bool Simulation::act(int strand, const StrandAct& next) {
  switch (next.op) {
    case StrandOp::compute:
      if (next.seconds <= 0) return true;
      give(program_.strands[index(strand)].worker, program_.strands[index(strand)].key,
           {Task::Kind::act, strand, next.seconds});
      return false;
    case StrandOp::send: send(next.index); return true;
    case StrandOp::wait: return wait_for_message(strand, next.index);
    case StrandOp::start: start_strand(next.index); return true;
    case StrandOp::join: return join(strand, next.index);
    case StrandOp::begin: times_.spans[index(next.index)].begin = now_; return true;
    case StrandOp::end: times_.spans[index(next.index)].end = now_; return true;
  }
  return true;
}

bool Simulation::wait_for_message(int strand, int message) {
  if (messages_[index(message)].is_there) return true;
  messages_[index(message)].waiter = strand;
  return false;
}

bool Simulation::join(int strand, int other) {
  if (strands_[index(other)].is_done) return true;
  strands_[index(other)].joiners.push_back(strand);
  return false;
}

void Simulation::book_wait(int strand, const StrandAct& act) {
  const Worker& worker = worker_of(strand);
  if (!worker.is_main) return;
  RankSpent& times = times_of(worker);
  const double since = strands_[index(strand)].since;
  if (act.op == StrandOp::compute) {
    times.work.at(static_cast<std::size_t>(act.work)) += now_ - since;
  } else if (act.op == StrandOp::join) {
    times.exposed.at(static_cast<std::size_t>(program_.strands[index(act.index)].traffic)) +=
        now_ - since;
  } else if (act.op == StrandOp::wait) {
    const double sent = std::clamp(messages_[index(act.index)].sent, since, now_);
    times.bubble += sent - since;
    times.exposed.at(static_cast<std::size_t>(program_.messages[index(act.index)].traffic)) +=
        now_ - sent;
  }
}

// --- workers

void Simulation::give(int worker, std::uint64_t key, const Task& task) {
  workers_[index(worker)].waiting.emplace(Order{key, sequence_++}, task);
  if (!workers_[index(worker)].is_busy) begin_next(worker);
}

void Simulation::advance_clock(ProcessorState& processor) {
  processor.work_clock += (now_ - processor.since) * processor.rate();
  processor.since = now_;
}

void Simulation::begin_next(int worker) {
  WorkerState& state = workers_[index(worker)];
  if (state.waiting.empty()) return;
  state.current = state.waiting.begin()->second;
  state.waiting.erase(state.waiting.begin());
  state.is_busy = true;
  const int place = program_.workers[index(worker)].processor;
  if (place == kNobody) {
    timed_.push({now_ + state.current.seconds, sequence_++, Timed::Kind::work, worker});
    return;
  }
  ProcessorState& processor = processors_[index(place)];
  advance_clock(processor);
  ++processor.busy;
  processor.ends.push(
      {processor.work_clock + state.current.seconds, sequence_++, Timed::Kind::work, worker});
}

void Simulation::end_work(int worker) {
  WorkerState& state = workers_[index(worker)];
  state.is_busy = false;
  const Task done = state.current;
  begin_next(worker);
  switch (done.kind) {
    case Task::Kind::act: return resume(done.index);
    case Task::Kind::sending: return enqueue(done.index);
    case Task::Kind::receiving: return arrive(done.index);
  }
}

// --- messages

void Simulation::send(int message) {
  const ProgramMessage& m = program_.messages[index(message)];
  messages_[index(message)].sent = now_;
  if (m.send_seconds > 0)
    give(program_.handlers[index(m.from)], m.key, {Task::Kind::sending, message, m.send_seconds});
  else
    enqueue(message);
}

void Simulation::enqueue(int message) {
  const int number = outbox_of_message_[index(message)];
  OutboxState& outbox = outboxes_[index(number)];
  outbox.waiting.emplace(Order{program_.messages[index(message)].key, sequence_++}, message);
  if (outbox.current == kNobody)
    begin_burst(number);
  else if (program_.messages[index(message)].key < outbox.current_order.key)
    overtake(outbox);
}

// What flows now ends with its segment; what is behind waits again.
void Simulation::overtake(OutboxState& outbox) {
  const ProgramMessage& current = program_.messages[index(outbox.current)];
  const double segment = program_.segment_bytes * current.flows;
  const double gone = outbox.burst - network_.left(outbox.flow, now_);
  const double until = std::min(outbox.burst, std::max(1.0, std::ceil(gone / segment)) * segment);
  const double less = outbox.burst - until;
  if (less <= 0) return;
  network_.shorten(outbox.flow, less, now_);
  messages_[index(outbox.current)].left += less;
  outbox.burst = until;
}

void Simulation::begin_burst(int number) {
  OutboxState& outbox = outboxes_[index(number)];
  if (outbox.waiting.empty()) return;
  outbox.current = outbox.waiting.begin()->second;
  outbox.current_order = outbox.waiting.begin()->first;
  outbox.waiting.erase(outbox.waiting.begin());
  MessageState& state = messages_[index(outbox.current)];
  if (!state.is_begun) times_.messages[index(outbox.current)].begin = now_;
  state.is_begun = true;
  outbox.burst = state.left;
  state.left = 0;
  network_.start(outbox.flow, program_.messages[index(outbox.current)].flows, outbox.burst, now_);
}

void Simulation::end_burst(int number) {
  OutboxState& outbox = outboxes_[index(number)];
  const int message = outbox.current;
  outbox.current = kNobody;
  if (messages_[index(message)].left > 0)
    outbox.waiting.emplace(outbox.current_order, message);
  else
    timed_.push({now_ + outbox.latency, sequence_++, Timed::Kind::arrival, message});
  begin_burst(number);
}

void Simulation::arrive(int message) {
  MessageState& state = messages_[index(message)];
  state.is_there = true;
  times_.messages[index(message)].end = now_;
  if (state.waiter != kNobody) resume(state.waiter);
}

// --- time

double Simulation::next_of(const ProcessorState& processor) const {
  if (processor.ends.empty()) return kForever;
  return processor.since +
         std::max(0.0, processor.ends.top().time - processor.work_clock) / processor.rate();
}

double Simulation::next_time() {
  double next = std::min(network_.next_end(), timed_.empty() ? kForever : timed_.top().time);
  for (const ProcessorState& processor : processors_) next = std::min(next, next_of(processor));
  return next;
}

void Simulation::take_events() {
  const double until = now_ * (1 + kSameTime);
  while (!timed_.empty() && timed_.top().time <= until) {
    const Timed event = timed_.top();
    timed_.pop();
    if (event.kind == Timed::Kind::work) {
      end_work(event.index);
    } else {
      const ProgramMessage& m = program_.messages[index(event.index)];
      if (m.receive_seconds > 0)
        give(program_.handlers[index(m.to)], m.key,
             {Task::Kind::receiving, event.index, m.receive_seconds});
      else
        arrive(event.index);
    }
  }
  for (ProcessorState& processor : processors_)
    while (next_of(processor) <= until) {
      advance_clock(processor);
      const int worker = processor.ends.top().index;
      processor.ends.pop();
      --processor.busy;
      end_work(worker);
    }
  for (int flow = network_.take_ended(until, now_); flow != kNobody;
       flow = network_.take_ended(until, now_))
    end_burst(outbox_of_flow_[index(flow)]);
}

void Simulation::refuse_to_hang() const {
  std::string text = "the program never ends:";
  int told = 0;
  for (std::size_t s = 0; s < strands_.size() && told < 8; ++s) {
    if (strands_[s].is_done) continue;
    const Strand& strand = program_.strands[s];
    ++told;
    if (!strands_[s].is_started) {
      text += fmt::format(" strand {} of rank {} is never started;", s,
                          worker_of(static_cast<int>(s)).rank);
      continue;
    }
    const StrandAct& act = strand.acts[strands_[s].at];
    text += fmt::format(" strand {} of rank {} waits at act {} ({} {});", s,
                        worker_of(static_cast<int>(s)).rank, strands_[s].at,
                        act.op == StrandOp::join ? "strand" : "message", act.index);
  }
  throw std::logic_error(text);
}

}  // namespace

RunTimes simulate(const RunProgram& program) {
  return Simulation(program).run();
}

}  // namespace laconic
