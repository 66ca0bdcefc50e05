#include "laconic/engine/courier.hpp"

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

namespace laconic {

namespace {

using Time = Courier::Time;
using Order = std::pair<DeadlineKey, std::uint64_t>;  // key, sequence of starting

// An advance that took longer did work, and others may have become possible meanwhile.
constexpr std::chrono::microseconds kLongAdvance{200};

Time now() {
  return std::chrono::steady_clock::now();
}
double seconds(Time begin, Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

// How long at least one operation of a class has been under way.
class ActiveClock {
 public:
  void begin(Time at) {
    if (count_++ == 0) since_ = at;
  }
  // What is to be added to the meter: the whole stretch when this was the last operation.
  double end(Time at) {
    if (--count_ > 0) return 0;
    const double stretch = seconds(since_, at);
    total_ += stretch;
    return stretch;
  }
  double total(Time at) const { return total_ + (count_ > 0 ? seconds(since_, at) : 0); }

 private:
  int count_ = 0;
  Time since_;
  double total_ = 0;
};

// Since when has nothing moved on the network?
class Stillness {
 public:
  explicit Stillness(const Engine& engine) : engine_(engine) {}
  Time since() {
    const std::uint64_t moved = engine_.moved();
    if (moved != std::exchange(moved_, moved)) since_ = now();
    return since_;
  }

 private:
  const Engine& engine_;
  std::uint64_t moved_ = engine_.moved();
  Time since_ = now();
};

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

struct Courier::Body {
  struct UnderWay {
    std::shared_ptr<Operation> operation;
    Time started;
    std::uint64_t round = 0;       // the last in which it was advanced
    std::uint64_t long_round = 0;  // the last in which that took long
  };
  using ClassTimes = std::array<double, kTrafficClasses>;

  Body(Engine& its_engine, OnDone its_on_done)
      : engine(its_engine), on_done(std::move(its_on_done)), still(its_engine) {}

  // The courier's thread.
  void work();
  bool wait_for_work();
  void advance_round();
  void look_again_before(Order order);
  std::optional<std::pair<Order, UnderWay>> next_of_round();
  void end_advance(Order order, bool is_done);
  void sleep(std::uint64_t seen);
  Deadline still_until();
  std::vector<std::string> describe_all();
  void fail(std::exception_ptr why);

  // Requires: the lock.
  void remove(std::map<Order, UnderWay>::iterator entry);
  void end_clock(Traffic traffic, Time at);
  ClassTimes active_until(Time at) const;
  void rethrow() const;

  Engine& engine;
  const OnDone on_done;
  Stillness still;          // the thread's own
  std::uint64_t round = 0;  // the thread's own

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::map<Order, UnderWay> under_way;
  std::map<const Operation*, Order> orders;
  const Operation* advancing = nullptr;
  std::uint64_t sequence = 0;
  Time last_change = now();  // when an operation started or ended
  std::array<ActiveClock, kTrafficClasses> clocks;
  std::exception_ptr failure;
  bool is_stopping = false;

  std::thread thread;
};

// The count is taken first: what is started, or a stop, between it and the sleep ends the sleep.
void Courier::Body::work() {
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

// False when the courier stops.
bool Courier::Body::wait_for_work() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_stopping || !under_way.empty(); });
  return !is_stopping;
}

// Advances every operation, the most urgent first.
void Courier::Body::advance_round() {
  ++round;
  while (const auto next = next_of_round()) {
    const auto& [order, entry] = *next;
    const Time begin = now();
    const bool is_done = entry.operation->advance(engine);
    const Time end = now();
    if (end - begin >= kLongAdvance) look_again_before(order);
    if (is_done && on_done) on_done(*entry.operation, entry.started, end);
    end_advance(order, is_done);
  }
}

// Operations that are more urgent may be able to go on by now. Once a round for each that took
// long, so that those behind it have their turn too.
void Courier::Body::look_again_before(Order order) {
  const std::lock_guard lock(mutex);
  const auto here = under_way.find(order);
  if (here == under_way.end()) return;  // dropped meanwhile
  if (std::exchange(here->second.long_round, round) == round) return;
  for (auto it = under_way.begin(); it != here; ++it) it->second.round = 0;
}

std::optional<std::pair<Order, Courier::Body::UnderWay>> Courier::Body::next_of_round() {
  const std::lock_guard lock(mutex);
  if (is_stopping) return std::nullopt;
  for (auto& [order, entry] : under_way)
    if (std::exchange(entry.round, round) != round) {
      advancing = entry.operation.get();
      return std::pair{order, entry};
    }
  return std::nullopt;
}

void Courier::Body::end_advance(Order order, bool is_done) {
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

void Courier::Body::remove(std::map<Order, UnderWay>::iterator entry) {
  last_change = now();
  end_clock(entry->second.operation->traffic(), last_change);
  orders.erase(entry->second.operation.get());
  under_way.erase(entry);
}

// Until something arrives. Requires: every operation has been advanced since the count was `seen`.
void Courier::Body::sleep(std::uint64_t seen) {
  const std::uint64_t count = engine.wait_for_arrival(seen, still_until());
  if (count != seen || now() < still_until()) return;
  const std::vector<std::string> waiting = describe_all();
  if (!waiting.empty()) throw_timeout(engine, waiting);
}

Deadline Courier::Body::still_until() {
  const std::lock_guard lock(mutex);
  return std::max(still.since(), last_change) + engine.options().deadline;
}

std::vector<std::string> Courier::Body::describe_all() {
  const std::lock_guard lock(mutex);
  std::vector<std::string> all;
  for (const auto& [order, entry] : under_way) all.push_back(entry.operation->describe());
  return all;
}

void Courier::Body::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex);
    failure = std::move(why);
    advancing = nullptr;
    for (const auto& [order, entry] : under_way) end_clock(entry.operation->traffic(), now());
    under_way.clear();
    orders.clear();
  }
  changed.notify_all();
}

void Courier::Body::end_clock(Traffic traffic, Time at) {
  const double stretch = clocks.at(static_cast<std::size_t>(traffic)).end(at);
  if (stretch > 0) engine.meter().spent(traffic, {.active = stretch});
}

Courier::Body::ClassTimes Courier::Body::active_until(Time at) const {
  ClassTimes times{};
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = clocks[i].total(at);
  return times;
}

void Courier::Body::rethrow() const {
  if (failure != nullptr) std::rethrow_exception(failure);
}

Courier::Courier(Engine& engine, OnDone on_done)
    : body_(std::make_unique<Body>(engine, std::move(on_done))) {
  body_->thread = std::thread([body = body_.get()] { body->work(); });
}

Courier::~Courier() {
  {
    const std::lock_guard lock(body_->mutex);
    body_->is_stopping = true;
  }
  body_->changed.notify_all();
  body_->engine.wake();
  body_->thread.join();
}

Engine& Courier::engine() {
  return body_->engine;
}

void Courier::start(std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(body_->mutex);
    body_->rethrow();
    const Order order{operation->key(), body_->sequence++};
    const Time at = now();
    body_->last_change = at;
    body_->clocks.at(static_cast<std::size_t>(operation->traffic())).begin(at);
    const bool is_new = body_->orders.emplace(operation.get(), order).second;
    LACONIC_ASSERT(is_new, operation->describe() + " is under way already");
    body_->under_way.emplace(order, Body::UnderWay{std::move(operation), at});
  }
  body_->changed.notify_all();
  body_->engine.wake();
}

void Courier::wait(const std::shared_ptr<Operation>& operation) {
  const Time begin = now();
  std::unique_lock lock(body_->mutex);
  body_->changed.wait(lock, [&] { return !body_->orders.contains(operation.get()); });
  body_->engine.meter().spent(operation->traffic(), {.exposed = seconds(begin, now())});
  body_->rethrow();
}

// A class is exposed while some operation of it is under way, not while others are waited for.
void Courier::wait_all() {
  std::unique_lock lock(body_->mutex);
  const Body::ClassTimes before = body_->active_until(now());
  body_->changed.wait(lock, [&] { return body_->under_way.empty(); });
  const Body::ClassTimes after = body_->active_until(now());
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i] > before[i])
      body_->engine.meter().spent(static_cast<Traffic>(i), {.exposed = after[i] - before[i]});
  body_->rethrow();
}

void Courier::drop(const std::shared_ptr<Operation>& operation) {
  std::unique_lock lock(body_->mutex);
  if (const auto found = body_->orders.find(operation.get()); found != body_->orders.end())
    body_->remove(body_->under_way.find(found->second));
  body_->changed.notify_all();
  body_->changed.wait(lock, [&] { return body_->advancing != operation.get(); });
}

void run(Engine& engine, Operation& operation) {
  const Time begin = now();
  Stillness still(engine);
  for (;;) {
    const std::uint64_t seen = engine.wait_for_arrival(0, {});
    if (operation.advance(engine)) break;
    const auto until = [&] { return still.since() + engine.options().deadline; };
    const std::uint64_t count = engine.wait_for_arrival(seen, until());
    if (count == seen && now() >= until()) throw_timeout(engine, {operation.describe()});
  }
  const double elapsed = seconds(begin, now());
  engine.meter().spent(operation.traffic(), {.active = elapsed, .exposed = elapsed});
}

}  // namespace laconic
