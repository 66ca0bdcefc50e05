#include "laconic/engine/progress_thread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/active_clock.hpp"
#include "laconic/engine/progress_deadline.hpp"

// How one thread advances many operations
// ---------------------------------------
// The thread works in rounds. In a round every operation that is under way is advanced, in the
// order of `under_way`: deadline key first, then sequence of starting. Then it sleeps until
// something arrives, is started, or a stop is asked for; the count of arrivals was read before the
// round, so that whatever came during it ends the sleep at once. A GPU wakes nobody: while an
// operation waits for one (polls()) the sleep is short.
//
// An advance() may encode for tens of milliseconds, in which messages arrive for operations that
// are more urgent. So after one that took longer than kLongAdvance the round goes back to all that
// stand before it (look_again_before); but only once a round for each operation, or one that takes
// long again and again would keep those behind it from their turn for ever.
//
// `mutex` guards what the callers share with the thread. It is not held during advance(), which may
// take long and calls the engine; `advancing` says which operation is being advanced meanwhile.
// drop() takes an operation out of the table and then waits until `advancing` is another one: after
// that nobody touches it. A failure ends the thread and takes everything out of the table, so that
// every wait ends; `failure` is thrown there and from then on.
//
// Nothing deadlocks here: the thread waits only for arrivals, without the lock, and callers wait
// only for `changed`, which gives the lock back. That arrivals come, or a deadline passes, is the
// engine's promise (engine/engine.cpp).
//
// Time: `clocks` has, for each traffic class, how many of its operations are under way, and adds up
// the stretches in which there was at least one (active). wait_all() reads them before and after,
// so that a class is exposed only as long as it had something under way.
namespace laconic {

namespace {

using Time = EngineEvent::Time;
using Order = std::pair<DeadlineKey, std::uint64_t>;  // key, sequence of starting

// An advance that took longer did work, and others may have become possible meanwhile.
constexpr std::chrono::microseconds kLongAdvance{200};

Time now() {
  return std::chrono::steady_clock::now();
}
double seconds(Time begin, Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

EngineEvent::Time::duration duration_of(double seconds) {
  return std::chrono::duration_cast<EngineEvent::Time::duration>(
      std::chrono::duration<double>(seconds));
}

// When to ask again, though nothing arrives.
Deadline next_round(bool is_polling) {
  return is_polling ? std::chrono::steady_clock::now() + kPollPeriod : in(Window::kPatience);
}

bool advance(Operation& operation, Engine& engine, Footprint* footprint) {
  const FootprintScope scope(footprint);
  return operation.advance(engine);
}

// Those of messages are odd (engine/event.cpp).
std::uint64_t flow_of(std::uint64_t sequence) {
  return 2 * (sequence + 1);
}

EngineEvent done_event(const Operation& operation, const Footprint& footprint, Time begin, Time end,
                       std::uint64_t flow = 0) {
  return {.kind = EngineEvent::Kind::operation,
          .traffic = operation.traffic(),
          .begin = begin,
          .end = end,
          .what = operation.describe(),
          .peers = footprint.peers,
          .raw_bytes = footprint.raw_bytes,
          .wire_bytes = footprint.wire_bytes,
          .flow = flow};
}

[[noreturn]] void throw_timeout(const Engine& engine, const std::vector<std::string>& waiting) {
  constexpr std::size_t kShown = 8;
  const std::vector<std::string> shown(
      waiting.begin(),
      waiting.begin() + static_cast<std::ptrdiff_t>(std::min(waiting.size(), kShown)));
  throw Timeout(
      -1,
      fmt::format(
          "rank {}: nothing moved for {}; under way: {}{}", engine.rank(),
          human_seconds(static_cast<double>(engine.options().deadline.count()) / 1e3),
          join(shown, "; "),
          waiting.size() > kShown ? fmt::format("; and {} more", waiting.size() - kShown) : ""));
}

}  // namespace

struct ProgressThread::Body {
  struct InFlight {
    std::shared_ptr<Operation> operation;
    Time started;
    std::shared_ptr<Footprint> footprint = nullptr;  // null: nobody observes
    std::uint64_t round = 0;                         // the last in which it was advanced
    std::uint64_t long_round = 0;                    // the last in which that took long
  };

  explicit Body(Engine& its_engine) : engine(its_engine), deadline(its_engine.options().deadline) {}

  // The progress thread.
  void work();
  bool wait_for_work();
  void advance_round();
  void look_again_before(Order order);
  std::optional<std::pair<Order, InFlight>> next_of_round();
  void end_advance(Order order, bool is_done);
  void sleep(std::uint64_t seen);
  std::uint64_t progress();
  std::vector<std::string> describe_all();
  void fail(std::exception_ptr why);

  // Requires: the lock.
  void remove(std::map<Order, InFlight>::iterator entry);
  void end_clock(const Operation& operation);
  void rethrow() const;

  Engine& engine;
  ProgressDeadline deadline;  // the thread's own
  std::uint64_t round = 0;    // the thread's own
  bool is_polling = false;    // the thread's own: somebody is, in this round

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::map<Order, InFlight> under_way;
  std::map<const Operation*, Order> orders;
  const Operation* advancing = nullptr;
  std::uint64_t sequence = 0;
  std::uint64_t changes = 0;  // operations that started or ended
  ActiveClocks clocks;
  std::array<std::uint64_t, kTrafficClasses> last_flow{};  // of the operation that ended last
  std::exception_ptr failure;
  bool is_stopping = false;

  std::thread thread;
};

// The count is taken first: what is started, or a stop, between it and the sleep ends the sleep.
void ProgressThread::Body::work() {
  try {
    for (;;) {
      const std::uint64_t seen = engine.wait_for_arrival(0, {});
      if (!wait_for_work()) return;
      advance_round();
      sleep(seen);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

// False when the progress thread stops.
bool ProgressThread::Body::wait_for_work() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_stopping || !under_way.empty(); });
  return !is_stopping;
}

// Advances every operation, the most urgent first.
void ProgressThread::Body::advance_round() {
  ++round;
  is_polling = false;
  while (const auto next = next_of_round()) {
    const auto& [order, entry] = *next;
    const Time begin = now();
    const bool is_done = advance(*entry.operation, engine, entry.footprint.get());
    const Time end = now();
    if (end - begin >= kLongAdvance) look_again_before(order);
    if (!is_done && entry.operation->polls()) is_polling = true;
    if (is_done && entry.footprint != nullptr)
      engine.notify(done_event(*entry.operation, *entry.footprint, entry.started, end,
                               flow_of(order.second)));
    end_advance(order, is_done);
  }
}

// Operations that are more urgent may be able to go on by now. Once a round for each that took
// long, so that those behind it have their turn too.
void ProgressThread::Body::look_again_before(Order order) {
  const std::lock_guard lock(mutex);
  const auto here = under_way.find(order);
  if (here == under_way.end()) return;  // dropped meanwhile
  if (std::exchange(here->second.long_round, round) == round) return;
  for (auto it = under_way.begin(); it != here; ++it) it->second.round = 0;
}

std::optional<std::pair<Order, ProgressThread::Body::InFlight>>
ProgressThread::Body::next_of_round() {
  const std::lock_guard lock(mutex);
  if (is_stopping) return std::nullopt;
  for (auto& [order, entry] : under_way)
    if (std::exchange(entry.round, round) != round) {
      advancing = entry.operation.get();
      return std::pair{order, entry};
    }
  return std::nullopt;
}

void ProgressThread::Body::end_advance(Order order, bool is_done) {
  {
    const std::lock_guard lock(mutex);
    advancing = nullptr;
    const auto found = under_way.find(order);
    const bool is_dropped = found == under_way.end();
    if (!is_done && !is_dropped) return;
    if (!is_dropped) remove(found);
  }
  changed.notify_all();
}

void ProgressThread::Body::remove(std::map<Order, InFlight>::iterator entry) {
  ++changes;
  const Traffic traffic = entry->second.operation->traffic();
  last_flow.at(static_cast<std::size_t>(traffic)) = flow_of(entry->first.second);
  end_clock(*entry->second.operation);
  orders.erase(entry->second.operation.get());
  under_way.erase(entry);
}

// Until something arrives, or what the window refused, or a GPU, may be asked again. Requires:
// every operation has been advanced since the count was `seen`.
void ProgressThread::Body::sleep(std::uint64_t seen) {
  const Deadline until = std::min(deadline.until(progress()), next_round(is_polling));
  const std::uint64_t count = engine.wait_for_arrival(seen, until);
  if (count != seen || !deadline.has_passed(progress())) return;
  const std::vector<std::string> waiting = describe_all();
  if (!waiting.empty()) throw_timeout(engine, waiting);
}

// Counts segments that moved, and operations that started or ended.
std::uint64_t ProgressThread::Body::progress() {
  const std::lock_guard lock(mutex);
  return engine.moved() + changes;
}

std::vector<std::string> ProgressThread::Body::describe_all() {
  const std::lock_guard lock(mutex);
  std::vector<std::string> all;
  for (const auto& [order, entry] : under_way) all.push_back(entry.operation->describe());
  return all;
}

void ProgressThread::Body::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex);
    failure = std::move(why);
    advancing = nullptr;
    for (const auto& [order, entry] : under_way) end_clock(*entry.operation);
    under_way.clear();
    orders.clear();
  }
  changed.notify_all();
}

void ProgressThread::Body::end_clock(const Operation& operation) {
  clocks.end(operation.traffic(), operation.unit(), now(), engine.meter());
}

void ProgressThread::Body::rethrow() const {
  if (failure != nullptr) std::rethrow_exception(failure);
}

ProgressThread::ProgressThread(Engine& engine) : body_(std::make_unique<Body>(engine)) {
  body_->thread = std::thread([body = body_.get()] { body->work(); });
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(body_->mutex);
    body_->is_stopping = true;
  }
  body_->changed.notify_all();
  body_->engine.wake();
  body_->thread.join();
}

Engine& ProgressThread::engine() {
  return body_->engine;
}

void ProgressThread::start(std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(body_->mutex);
    body_->rethrow();
    const Order order{operation->key(), body_->sequence++};
    const Time at = now();
    ++body_->changes;
    body_->clocks.begin(operation->traffic(), operation->unit(), at);
    const bool is_new = body_->orders.emplace(operation.get(), order).second;
    LACONIC_ASSERT(is_new, operation->describe() + " is under way already");
    auto footprint = body_->engine.is_observed() ? std::make_shared<Footprint>() : nullptr;
    body_->under_way.emplace(order, Body::InFlight{std::move(operation), at, std::move(footprint)});
  }
  body_->changed.notify_all();
  body_->engine.wake();
}

void ProgressThread::wait(const std::shared_ptr<Operation>& operation) {
  const Time begin = now();
  std::unique_lock lock(body_->mutex);
  const auto found = body_->orders.find(operation.get());
  const std::uint64_t flow = found == body_->orders.end() ? 0 : flow_of(found->second.second);
  body_->changed.wait(lock, [&] { return !body_->orders.contains(operation.get()); });
  body_->engine.waited(operation->traffic(), begin, now(), flow, operation->unit());
  body_->rethrow();
}

bool ProgressThread::has_ended(const std::shared_ptr<Operation>& operation) const {
  const std::lock_guard lock(body_->mutex);
  return !body_->orders.contains(operation.get());
}

// A class is exposed while some operation of it is under way, not while others are waited for.
void ProgressThread::wait_all() {
  std::unique_lock lock(body_->mutex);
  const Time begin = now();
  const ActiveClocks::ClassTimes before = body_->clocks.until(begin);
  body_->changed.wait(lock, [&] { return body_->under_way.empty(); });
  const ActiveClocks::ClassTimes after = body_->clocks.until(now());
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i] > before[i])
      body_->engine.waited(static_cast<Traffic>(i), begin,
                           begin + duration_of(after[i] - before[i]), body_->last_flow[i]);
  body_->rethrow();
}

void ProgressThread::drop(const std::shared_ptr<Operation>& operation) {
  std::unique_lock lock(body_->mutex);
  if (const auto found = body_->orders.find(operation.get()); found != body_->orders.end())
    body_->remove(body_->under_way.find(found->second));
  body_->changed.notify_all();
  body_->changed.wait(lock, [&] { return body_->advancing != operation.get(); });
}

void run(Engine& engine, Operation& operation) {
  const Time begin = now();
  ProgressDeadline deadline(engine.options().deadline, engine.moved());
  Footprint footprint;
  const bool is_observed = engine.is_observed();
  for (;;) {
    const std::uint64_t seen = engine.wait_for_arrival(0, {});
    if (advance(operation, engine, is_observed ? &footprint : nullptr)) break;
    const Deadline until = std::min(deadline.until(engine.moved()), next_round(operation.polls()));
    const std::uint64_t count = engine.wait_for_arrival(seen, until);
    if (count == seen && deadline.has_passed(engine.moved()))
      throw_timeout(engine, {operation.describe()});
  }
  const Time end = now();
  engine.meter().spent(operation.traffic(), operation.unit(), {.active = seconds(begin, end)});
  if (is_observed) engine.notify(done_event(operation, footprint, begin, end));
  engine.waited(operation.traffic(), begin, end, 0, operation.unit());
}

}  // namespace laconic
