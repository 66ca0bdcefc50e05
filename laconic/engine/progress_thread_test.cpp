#include "laconic/engine/progress_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/engine/test_message.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

EngineOptions with_deadline(int ms) {
  return {.segment_bytes = 64, .deadline = milliseconds(ms), .records = 64};
}

// Does what the test says at every advance.
class Scripted : public Operation {
 public:
  using Script = std::function<bool(Engine&)>;
  Scripted(std::string name, DeadlineKey key, Script script, Traffic traffic = Traffic::dp_gradient)
      : name_(std::move(name)), key_(key), script_(std::move(script)), traffic_(traffic) {}

  bool advance(Engine& engine) override { return script_(engine); }
  DeadlineKey key() const override { return key_; }
  Traffic traffic() const override { return traffic_; }
  std::string describe() const override { return name_; }

 private:
  std::string name_;
  DeadlineKey key_;
  Script script_;
  Traffic traffic_;
};

std::shared_ptr<Operation> expect(Rank from, Tag tag, const Bytes& message, DeadlineKey key = 0) {
  return std::make_shared<Scripted>("recv of " + to_text(tag), key, [=](Engine& engine) {
    const std::optional<Bytes> got = engine.try_recv(from, tag);
    if (got) {
      EXPECT_EQ(*got, message);
    }
    return got.has_value();
  });
}

std::shared_ptr<Operation> never(const std::string& name, DeadlineKey key = 0) {
  return std::make_shared<Scripted>(name, key, [](Engine&) { return false; });
}

// Waits for something that wakes nobody.
class Polling final : public Scripted {
 public:
  using Scripted::Scripted;
  bool polls() const override { return true; }
};

// An operation that ends when somebody says so.
struct Switch {
  std::atomic<bool> is_on = false;
  std::shared_ptr<Operation> operation(Traffic traffic = Traffic::dp_gradient) {
    return std::make_shared<Scripted>(
        "switch", 0, [this](Engine&) { return is_on.load(); }, traffic);
  }
  void turn_on(Engine& engine) {
    is_on = true;
    engine.wake();
  }
};

struct Lone {  // one rank, in this thread
  explicit Lone(int deadline_ms = 20'000)
      : transports(make_in_process(2)), engine(*transports[0], with_deadline(deadline_ms)) {}
  std::vector<std::unique_ptr<Transport>> transports;
  Engine engine;
};

// In the order in which operations were first advanced.
class Log {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.push_back(name);
  }
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

std::shared_ptr<Operation> logged(Log& log, const std::string& name, DeadlineKey key) {
  return std::make_shared<Scripted>(name, key, [&log, name](Engine&) {
    log.add(name);
    return true;
  });
}

// Keeps the progress thread busy, as encoding would, until `go` is set; tells by `busy` that it
// does.
std::shared_ptr<Operation> hold(Log& log, DeadlineKey key, std::promise<void>& busy,
                                std::shared_future<void> go) {
  return std::make_shared<Scripted>("hold", key, [&log, &busy, go](Engine&) {
    log.add("hold");
    busy.set_value();
    go.wait();
    std::this_thread::sleep_for(milliseconds(2));
    return true;
  });
}

TEST(ProgressThread, WhoPollsIsAskedAgainThoughNothingArrives) {
  Lone lone;
  const auto hundredth = [](int& asked) {
    return std::make_shared<Polling>("poll", 0, [&asked](Engine&) { return ++asked == 100; });
  };
  const auto begin = std::chrono::steady_clock::now();
  int in_thread = 0, here = 0;
  {
    ProgressThread progress_thread(lone.engine);
    const auto operation = hundredth(in_thread);
    progress_thread.start(operation);
    progress_thread.wait(operation);
  }
  run(lone.engine, *hundredth(here));
  EXPECT_EQ(in_thread, 100);
  EXPECT_EQ(here, 100);
  // Asked by the window's patience alone they would take 25 s each.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 99 * Window::kPatience);
}

TEST(ProgressThread, WhoPollsInVainReachesTheDeadline) {
  Lone lone(100);
  ProgressThread progress_thread(lone.engine);
  const auto operation =
      std::make_shared<Polling>("waiting for the GPU", 0, [](Engine&) { return false; });
  progress_thread.start(operation);
  try {
    progress_thread.wait(operation);
    ADD_FAILURE();
  } catch (const Timeout& error) {
    EXPECT_NE(std::string(error.what()).find("waiting for the GPU"), std::string::npos);
  }
}

TEST(ProgressThread, WalksManyOperationsAtOnce) {
  run_ranks(3, [](Transport& transport) {
    constexpr std::uint64_t kOperations = 300;
    Engine engine(transport, with_deadline(20'000));
    ProgressThread progress_thread(engine);
    std::vector<std::shared_ptr<Operation>> operations;
    for (std::uint64_t i = 0; i < kOperations; ++i)
      for (Rank r = 0; r < 3; ++r) {
        if (r == engine.rank()) continue;
        operations.push_back(expect(r, gradient_tag(i), message_of(i, i), kOperations - i));
        progress_thread.start(operations.back());
        engine.send(request_to(r, gradient_tag(kOperations - 1 - i),
                               message_of(kOperations - 1 - i, kOperations - 1 - i), i));
      }
    progress_thread.wait(operations.front());
    progress_thread.wait(operations.back());
    progress_thread.wait_all();
    for (const auto& operation : operations) progress_thread.wait(operation);
    engine.flush();
    EXPECT_EQ(engine.meter().read().received.size(), 2U);
  });
}

TEST(ProgressThread, ManyThreadsMayStartAndWait) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, with_deadline(20'000));
    ProgressThread progress_thread(engine);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < 100; ++i) {
          const auto operation =
              expect(1 - engine.rank(), gradient_tag(i, t), message_of(200, i + t), i);
          progress_thread.start(operation);
          engine.send(request_to(1 - engine.rank(), gradient_tag(i, t), message_of(200, i + t)));
          progress_thread.wait(operation);
        }
      });
    for (std::thread& thread : threads) thread.join();
    engine.flush();
  });
}

TEST(ProgressThread, LooksAtTheMostUrgentFirst) {
  Lone lone;
  Log log;
  ProgressThread progress_thread(lone.engine);
  std::promise<void> busy, go;
  progress_thread.start(hold(log, 50, busy, go.get_future()));
  busy.get_future().wait();
  for (const DeadlineKey key : {30, 10, 20, 60, 10})
    progress_thread.start(logged(log, std::to_string(key), key));
  go.set_value();
  progress_thread.wait_all();
  EXPECT_EQ(log.names(), (std::vector<std::string>{"hold", "10", "10", "20", "30", "60"}));
}

TEST(ProgressThread, AfterALongAdvanceAnUrgentOperationThatCanGoOnDoes) {
  Lone lone;
  Log log;
  ProgressThread progress_thread(lone.engine);
  std::atomic<bool> is_ready = false;
  progress_thread.start(std::make_shared<Scripted>("urgent", 1, [&](Engine&) {
    if (is_ready) log.add("urgent");
    return is_ready.load();
  }));
  std::promise<void> busy, go;
  progress_thread.start(hold(log, 50, busy, go.get_future()));
  busy.get_future().wait();
  progress_thread.start(logged(log, "late", 60));
  is_ready = true;  // as if its message had come while the other was encoding
  go.set_value();
  progress_thread.wait_all();
  EXPECT_EQ(log.names(), (std::vector<std::string>{"hold", "urgent", "late"}));
}

TEST(ProgressThread, OperationsThatTakeLongForNothingStarveNobody) {
  Lone lone;
  Log log;
  ProgressThread progress_thread(lone.engine);
  for (const DeadlineKey key : {1, 2, 3})
    progress_thread.start(std::make_shared<Scripted>("slow", key, [](Engine&) {
      std::this_thread::sleep_for(milliseconds(1));
      return false;
    }));
  const auto last = logged(log, "last", 9);
  progress_thread.start(last);
  progress_thread.wait(last);
  EXPECT_EQ(log.names(), (std::vector<std::string>{"last"}));
}

TEST(ProgressThread, ThrowsWhatAnOperationThrewToEverybody) {
  Lone lone;
  ProgressThread progress_thread(lone.engine);
  const auto other = never("other");
  progress_thread.start(other);
  progress_thread.start(std::make_shared<Scripted>(
      "bad", 5, [](Engine&) -> bool { throw WireError(7, "payload", "is rotten"); }));
  EXPECT_THROW(progress_thread.wait(other), WireError);
  EXPECT_THROW(progress_thread.wait_all(), WireError);
  EXPECT_THROW(progress_thread.start(never("third")), WireError);
  EXPECT_EQ(other.use_count(), 1);  // dropped
}

TEST(ProgressThread, NamesWhatIsUnderWayWhenNothingMoves) {
  Lone lone(50);
  ProgressThread progress_thread(lone.engine);
  progress_thread.start(never("all_reduce of dp.gradient 2, waiting for rank 3", 2));
  progress_thread.start(never("all_reduce of dp.gradient 1, waiting for rank 2", 1));
  std::string text;
  try {
    progress_thread.wait_all();
  } catch (const Timeout& timeout) {
    text = timeout.what();
    EXPECT_EQ(timeout.peer(), -1);
  }
  EXPECT_EQ(text,
            "rank 0: nothing moved for 50 ms; under way: all_reduce of dp.gradient 1, waiting for "
            "rank 2; all_reduce of dp.gradient 2, waiting for rank 3");
}

TEST(ProgressThread, NamesAtMostEight) {
  Lone lone(50);
  ProgressThread progress_thread(lone.engine);
  for (int i = 0; i < 10; ++i) progress_thread.start(never("op " + std::to_string(i), 1));
  try {
    progress_thread.wait_all();
    ADD_FAILURE();
  } catch (const Timeout& timeout) {
    EXPECT_NE(std::string(timeout.what()).find("; op 7; and 2 more"), std::string::npos)
        << timeout.what();
  }
}

TEST(ProgressThread, WaitsAsLongAsSomethingMoves) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, with_deadline(600));
    if (engine.rank() == 1) {
      for (std::uint64_t i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(milliseconds(150));
        engine.send(request_to(0, gradient_tag(i), message_of(10, i)));
      }
      return engine.flush();
    }
    ProgressThread progress_thread(engine);
    for (std::uint64_t i = 0; i < 5; ++i)
      progress_thread.start(expect(1, gradient_tag(i), message_of(10, i)));
    progress_thread.wait_all();  // 750 ms, longer than the deadline
  });
}

TEST(ProgressThread, IdleTimeIsNoTimeout) {
  Lone lone(50);
  ProgressThread progress_thread(lone.engine);
  std::this_thread::sleep_for(milliseconds(120));
  Switch light;
  light.turn_on(lone.engine);
  const auto operation = light.operation();
  progress_thread.start(operation);
  progress_thread.wait(operation);
}

TEST(ProgressThread, APeerThatDiesEndsEveryWait) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, with_deadline(20'000));
    if (engine.rank() == 1) return transport.close();
    ProgressThread progress_thread(engine);
    progress_thread.start(expect(1, gradient_tag(1), {}));
    try {
      progress_thread.wait_all();
      ADD_FAILURE();
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 1);
    }
  });
}

TEST(ProgressThread, ActiveTimeIsAUnionAndExposedTimeIsInsideWaits) {
  Lone lone;
  ProgressThread progress_thread(lone.engine);
  Switch one, two, control;
  const Stopwatch watch;
  progress_thread.start(one.operation());
  progress_thread.start(two.operation());
  progress_thread.start(control.operation(Traffic::control));
  std::this_thread::sleep_for(milliseconds(60));
  control.turn_on(lone.engine);
  one.turn_on(lone.engine);
  while (!lone.engine.meter().read().times.contains(Traffic::control))
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(lone.engine.meter().read().times.count(Traffic::dp_gradient), 0U);  // still active
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(150));
    two.turn_on(lone.engine);
  });
  const Stopwatch waited;
  progress_thread.wait_all();
  const double waiting = waited.seconds();
  const double all = watch.seconds();
  later.join();
  auto times = lone.engine.meter().read().times;
  EXPECT_GE(times[Traffic::dp_gradient].active, 0.2);
  EXPECT_LE(times[Traffic::dp_gradient].active, all);  // the sum of both would be longer
  EXPECT_GT(times[Traffic::dp_gradient].exposed, 0.0);
  EXPECT_LE(times[Traffic::dp_gradient].exposed, waiting);
  EXPECT_GE(times[Traffic::control].active, 0.06);
  EXPECT_EQ(times[Traffic::control].exposed, 0.0);  // was done before anybody waited
}

TEST(ProgressThread, WaitingForOneExposesItsClass) {
  Lone lone;
  ProgressThread progress_thread(lone.engine);
  Switch one, two;
  const auto gradient = one.operation();
  progress_thread.start(gradient);
  progress_thread.start(two.operation(Traffic::control));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    one.turn_on(lone.engine);
  });
  progress_thread.wait(gradient);
  later.join();
  auto times = lone.engine.meter().read().times;
  EXPECT_GT(times[Traffic::dp_gradient].exposed, 0.0);
  EXPECT_EQ(times[Traffic::control].exposed, 0.0);
}

TEST(ProgressThread, ObserversHearOfOperationsAndOfWaitsForThem) {
  Lone lone;
  std::vector<EngineEvent> operations, waits;  // read after the wait, before which all were told
  lone.engine.observe([&](const EngineEvent& event) {
    EXPECT_GE(event.end, event.begin);
    EXPECT_EQ(event.traffic, Traffic::dp_gradient);
    (event.kind == EngineEvent::Kind::operation ? operations : waits).push_back(event);
  });
  const double before = lone.engine.meter().read().times[Traffic::dp_gradient].exposed;
  {
    ProgressThread progress_thread(lone.engine);
    for (int i = 0; i < 10; ++i) {
      auto operation =
          std::make_shared<Scripted>(std::to_string(i), 0, [&, first = true](Engine&) mutable {
            std::this_thread::sleep_for(milliseconds(1));
            if (first) lone.engine.wake();
            return !std::exchange(first, false);
          });
      progress_thread.start(operation);
      if (i % 2 == 0)
        progress_thread.wait_all();
      else
        progress_thread.wait(operation);
      ASSERT_EQ(operations.size(), static_cast<std::size_t>(i + 1));
      ASSERT_EQ(waits.size(), static_cast<std::size_t>(i + 1));
      EXPECT_EQ(operations.back().what, std::to_string(i));
      EXPECT_EQ(waits.back().flow, operations.back().flow);
      EXPECT_NE(waits.back().flow, 0U);
      EXPECT_GE(waits.back().end - waits.back().begin, milliseconds(1));
    }
    progress_thread.start(never("dropped"));
  }
  lone.engine.observe({});
  EXPECT_EQ(operations.size(), 10U);
  double exposed = 0;
  for (const EngineEvent& wait : waits)
    exposed += std::chrono::duration<double>(wait.end - wait.begin).count();
  EXPECT_NEAR(exposed, lone.engine.meter().read().times[Traffic::dp_gradient].exposed - before,
              1e-6);
}

TEST(ProgressThread, AnOperationIsToldOfWithWhatItSent) {
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport, {.segment_bytes = 64});
    std::vector<EngineEvent> events;
    engine.observe([&](const EngineEvent& event) { events.push_back(event); });
    const Rank peer = 1 - engine.rank();
    const Tag tag = make_tag({.traffic = Traffic::dp_gradient, .unit = 3, .number = 8});
    bool is_sent = false;
    Scripted exchange("exchange", 0, [&](Engine& e) {
      if (!std::exchange(is_sent, true))
        e.send({.to = peer,
                .tag = tag,
                .raw_bytes = 1000,
                .message = std::make_shared<const Bytes>(200)});
      return e.try_recv(peer, tag).has_value();
    });
    run(engine, exchange);
    engine.flush();
    engine.observe({});
    std::map<EngineEvent::Kind, EngineEvent> by_kind;
    for (const EngineEvent& event : events)
      EXPECT_TRUE(by_kind.emplace(event.kind, event).second) << event.what;
    ASSERT_EQ(by_kind.size(), 4U);
    const EngineEvent& operation = by_kind[EngineEvent::Kind::operation];
    EXPECT_EQ(operation.peers, std::set<Rank>{peer});
    EXPECT_EQ(operation.raw_bytes, 1000U);
    EXPECT_EQ(operation.wire_bytes, wire_bytes(200, 64));
    for (const auto kind : {EngineEvent::Kind::send, EngineEvent::Kind::recv}) {
      EXPECT_EQ(by_kind[kind].what, to_text(tag));
      EXPECT_EQ(by_kind[kind].peers, std::set<Rank>{peer});
      EXPECT_EQ(by_kind[kind].wire_bytes, wire_bytes(200, 64));
    }
    EXPECT_EQ(by_kind[EngineEvent::Kind::send].raw_bytes, 1000U);
    EXPECT_EQ(by_kind[EngineEvent::Kind::wait].begin, operation.begin);
    EXPECT_EQ(by_kind[EngineEvent::Kind::wait].end, operation.end);
  });
}

TEST(ProgressThread, DropsWhatIsUnderWayWhenItEnds) {
  Lone lone;
  const auto operation = never("endless");
  {
    ProgressThread progress_thread(lone.engine);
    progress_thread.start(operation);
  }
  EXPECT_EQ(operation.use_count(), 1);
}

TEST(Run, WalksOneOperationInTheCallingThread) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, with_deadline(20'000));
    if (engine.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(30));
      engine.send(request_to(0, gradient_tag(1), message_of(1000, 1)));
      return engine.flush();
    }
    run(engine, *expect(1, gradient_tag(1), message_of(1000, 1)));
    const Times times = engine.meter().read().times.at(Traffic::dp_gradient);
    EXPECT_GT(times.exposed, 0.0);
    EXPECT_EQ(times.active, times.exposed);
  });
}

TEST(Run, EndsWithTheDeadline) {
  Lone lone(50);
  EXPECT_THROW(run(lone.engine, *never("this")), Timeout);
}

// Whenever it comes, also just before the progress thread looks how much has arrived: others look
// all the time, so that it is often held up there.
TEST(ProgressThread, StopsAtOnceAtAnyMoment) {
  Lone lone(8000);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      while (!is_over) lone.engine.wait_for_arrival(~std::uint64_t{0}, {});
    });
  const Stopwatch clock;
  while (clock.seconds() < 0.5) {
    ProgressThread progress_thread(lone.engine);
    progress_thread.start(never("long"));
    std::this_thread::yield();
  }
  EXPECT_LT(clock.seconds(), 6);
  is_over = true;
  for (std::thread& other : others) other.join();
}

TEST(ProgressThread, DoesNotTouchWhatWasDropped) {
  Lone lone;
  ProgressThread progress_thread(lone.engine);
  for (int i = 0; i < 200; ++i) {
    auto buffer = std::make_unique<std::atomic<int>>(0);
    std::atomic<bool> is_under_way = false;
    const auto writer = std::make_shared<Scripted>("writer", 0, [&, b = buffer.get()](Engine&) {
      is_under_way = true;
      for (int k = 0; k < 1000; ++k) ++*b;
      return false;
    });
    Switch other;
    const auto stays = other.operation();
    progress_thread.start(stays);
    progress_thread.start(writer);
    while (!is_under_way) std::this_thread::yield();
    lone.engine.wake();
    progress_thread.drop(writer);
    const int seen = *buffer;
    EXPECT_EQ(seen % 1000, 0);  // not in the middle of it
    lone.engine.wake();
    other.turn_on(lone.engine);
    progress_thread.wait(stays);  // what is left goes on
    EXPECT_EQ(*buffer, seen);
    progress_thread.wait(writer);  // and nobody waits for what was dropped
  }
  EXPECT_GT(lone.engine.meter().read().times[Traffic::dp_gradient].active, 0);
}

TEST(ProgressThread, DropsWhatIsDoneOrFailedOrWasNeverStarted) {
  Lone lone;
  ProgressThread progress_thread(lone.engine);
  const auto done = std::make_shared<Scripted>("done", 0, [](Engine&) { return true; });
  progress_thread.drop(done);
  progress_thread.start(done);
  progress_thread.wait(done);
  progress_thread.drop(done);
  const auto bad = std::make_shared<Scripted>(
      "bad", 0, [](Engine&) -> bool { throw PeerLost(1, "rank 1 is lost"); });
  progress_thread.start(bad);
  EXPECT_THROW(progress_thread.wait(bad), PeerLost);
  progress_thread.drop(bad);
}

}  // namespace
}  // namespace laconic
