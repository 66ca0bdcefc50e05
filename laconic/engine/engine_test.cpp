#include "laconic/engine/engine.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/engine/test_gate.hpp"
#include "laconic/engine/test_message.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

EngineOptions options_of(std::size_t segment_bytes, milliseconds deadline = milliseconds(20'000)) {
  return {.segment_bytes = segment_bytes, .deadline = deadline, .records = 64};
}

// Two ranks in this thread: 0 sends through a gate, 1 receives.
struct Pair {
  explicit Pair(const EngineOptions& options)
      : transports(make_in_process(2)),
        gate(*transports[0]),
        sender(gate, options),
        receiver(*transports[1], options) {}

  std::vector<std::unique_ptr<Transport>> transports;
  Gate gate;
  Engine sender;
  Engine receiver;
};

template <class Error, class Act>
std::string message_of_error(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Engine, CarriesMessagesOfEverySizeAroundASegment) {
  run_ranks(2, [](Transport& transport) {
    for (const std::size_t segment : {1U, 7U, 16U}) {
      Engine engine(transport, options_of(segment));
      for (std::size_t bytes = 0; bytes <= 50; ++bytes) {
        const Tag tag = gradient_tag(100 * segment + bytes);
        if (engine.rank() == 0)
          engine.send(request_to(1, tag, message_of(bytes, bytes)));
        else
          EXPECT_EQ(engine.recv(0, tag), message_of(bytes, bytes)) << bytes;
      }
      engine.flush();
    }
  });
}

TEST(Engine, AnUrgentMessageOvertakesBetweenTwoSegments) {
  Pair pair(options_of(10));
  const Tag big = gradient_tag(1), urgent = gradient_tag(2);
  pair.sender.send(request_to(1, big, message_of(50, 1), 9));
  pair.gate.wait_for(1);  // its first segment is on the way
  pair.sender.send(request_to(1, urgent, message_of(15, 2), 1));
  pair.gate.let_pass(7);
  EXPECT_EQ(pair.receiver.recv(0, urgent), message_of(15, 2));
  EXPECT_EQ(pair.receiver.recv(0, big), message_of(50, 1));
  EXPECT_EQ(pair.gate.wait_for(7), (std::vector<Tag>{big, urgent, urgent, big, big, big, big}));
}

TEST(Engine, EqualKeysLeaveInTheOrderOfQueuing) {
  Pair pair(options_of(10));
  std::vector<Tag> tags;
  for (std::uint64_t i = 0; i < 20; ++i) {
    tags.push_back(gradient_tag(100 - i));
    pair.sender.send(request_to(1, tags.back(), message_of(5, i), 3));
  }
  pair.gate.let_pass(20);
  EXPECT_EQ(pair.gate.wait_for(20), tags);
}

// Pieces that end at once, and fill the window, open it.
void open(Window& window) {
  for (int i = 0; i < 20; ++i) {
    std::vector<Window::Piece> pieces;
    for (int j = 0; j < 8; ++j)
      if (auto piece = window.begin(0, 1000)) pieces.push_back(std::move(*piece));
    for (Window::Piece& piece : pieces) piece.end();
  }
}

// The gate sees the calls: a batch is one, whose first tag it is told.
TEST(Engine, HandsOverShortMessagesTogetherWhereTheWindowIsOpen) {
  Pair pair(options_of(100));
  open(pair.sender.window());
  const Tag first = gradient_tag(1), urgent = gradient_tag(9);
  pair.sender.send(request_to(1, first, message_of(90, 1), 3));
  pair.gate.wait_for(1);
  for (std::uint64_t i = 2; i < 6; ++i)
    pair.sender.send(request_to(1, gradient_tag(i), message_of(30, i), 3));
  pair.sender.send(request_to(1, urgent, message_of(30, 9), 1));
  pair.gate.let_pass(3);
  for (std::uint64_t i = 2; i < 6; ++i)
    EXPECT_EQ(pair.receiver.recv(0, gradient_tag(i)), message_of(30, i));
  EXPECT_EQ(pair.receiver.recv(0, urgent), message_of(30, 9));
  EXPECT_EQ(pair.gate.wait_for(3), (std::vector<Tag>{first, urgent, gradient_tag(4)}));
  pair.sender.flush();
  const auto sent = laconic::sent(pair.sender.meter().read(), Traffic::dp_gradient);
  EXPECT_EQ(sent.messages, 6u);
  EXPECT_EQ(sent.wire_bytes, 90u + 5 * 30 + 6 * kSegmentTrailer) << "as if each had left alone";
}

TEST(Engine, AnUrgentMessageLendsItsKeyToEarlierOnesOfItsTag) {
  Pair pair(options_of(10));
  const Tag shared = gradient_tag(1), other = gradient_tag(2);
  pair.sender.send(request_to(1, shared, message_of(20, 1), 9));
  pair.gate.wait_for(1);
  pair.sender.send(request_to(1, other, message_of(10, 2), 5));
  pair.sender.send(request_to(1, shared, message_of(10, 3), 9));
  pair.sender.send(request_to(1, shared, message_of(10, 4), 1));
  pair.gate.let_pass(5);
  EXPECT_EQ(pair.gate.wait_for(5), (std::vector<Tag>{shared, shared, shared, shared, other}));
  EXPECT_EQ(pair.receiver.recv(0, shared), message_of(20, 1));
  EXPECT_EQ(pair.receiver.recv(0, shared), message_of(10, 3));
  EXPECT_EQ(pair.receiver.recv(0, shared), message_of(10, 4));
}

TEST(Engine, APeerThatIsSlowHoldsUpNoOther) {
  run_ranks(3, [](Transport& transport) {
    Gate gate(transport);
    Engine engine(gate, options_of(10));
    if (engine.rank() != 0) {
      EXPECT_EQ(engine.recv(0, gradient_tag(0)), message_of(10, 0));
      return;
    }
    for (const Rank to : {1, 2}) engine.send(request_to(to, gradient_tag(0), message_of(10, 0)));
    gate.wait_for(2);  // both are with the transport at the same time
    gate.let_pass(2);
    engine.flush();
  });
}

TEST(Engine, ThousandsOfMessagesFromManyThreadsArriveWhole) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kMessages = 300;
  run_ranks(3, [](Transport& transport) {
    Engine engine(transport, options_of(64));
    const auto bytes_of = [](std::uint64_t i) { return (i * 37) % 500; };
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < kMessages; ++i)
          for (Rank to = 0; to < 3; ++to)
            engine.send(
                request_to(to, gradient_tag(i, t), message_of(bytes_of(i), i + t), i * 7 % 5));
        for (std::uint64_t i = kMessages; i-- > 0;)
          for (Rank from = 0; from < 3; ++from)
            EXPECT_EQ(engine.recv(from, gradient_tag(i, t)), message_of(bytes_of(i), i + t));
      });
    for (std::thread& thread : threads) thread.join();
    engine.flush();
    Count expected;
    for (std::uint64_t i = 0; i < kMessages; ++i)
      expected += {3 * kThreads, 3 * kThreads * 2 * bytes_of(i),
                   3 * kThreads * wire_bytes(bytes_of(i), 64)};
    EXPECT_EQ(sent(engine.meter().read()), expected);
  });
}

TEST(Engine, TwoWhoWaitForTheSameTagGetAMessageEach) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, options_of(8));
    if (engine.rank() == 0) {
      for (std::uint64_t i = 0; i < 200; ++i)
        engine.send(request_to(1, gradient_tag(0), message_of(100, i)));
      engine.flush();
      return;
    }
    std::mutex mutex;
    std::multiset<Bytes> got, expected;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          Bytes message = engine.recv(0, gradient_tag(0));
          const std::lock_guard lock(mutex);
          got.insert(std::move(message));
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (std::uint64_t i = 0; i < 200; ++i) expected.insert(message_of(100, i));
    EXPECT_EQ(got, expected);
  });
}

TEST(Engine, CarriesALongMessageInBothDirectionsAtOnce) {
#ifdef __SANITIZE_THREAD__
  constexpr std::size_t kBytes = std::size_t{2} << 20;  // minutes, otherwise
#else
  constexpr std::size_t kBytes = std::size_t{64} << 20;
#endif
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport);
    const Bytes message = message_of(kBytes, 1);
    engine.send(request_to(1 - engine.rank(), gradient_tag(0), message));
    EXPECT_TRUE(engine.recv(1 - engine.rank(), gradient_tag(0)) == message);
    engine.flush();
  });
}

TEST(Engine, OneMessageMayGoToMany) {
  run_ranks(4, [](Transport& transport) {
    Engine engine(transport, options_of(16));
    if (engine.rank() > 0) {
      EXPECT_EQ(engine.recv(0, gradient_tag(1)), message_of(100, 1));
      return;
    }
    SendRequest request = request_to(0, gradient_tag(1), message_of(100, 1));
    for (request.to = 0; request.to < 4; ++request.to) engine.send(request);
    EXPECT_EQ(engine.recv(0, gradient_tag(1)), message_of(100, 1));
    engine.flush();
    request.message.reset();
  });
}

TEST(Engine, MetersWhatLeftAndWhatCame) {
  Pair pair(options_of(10));
  const std::vector<std::size_t> sizes = {0, 1, 9, 10, 11, 35};
  Count out, in;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pair.sender.send(request_to(1, gradient_tag(i), message_of(sizes[i], i)));
    out += {1, 2 * sizes[i], wire_bytes(sizes[i], 10)};
    in += {1, 0, wire_bytes(sizes[i], 10)};
  }
  EXPECT_EQ(sent(pair.sender.meter().read()), Count{});  // the gate is shut
  const MeterReading before = pair.sender.meter().read();
  pair.gate.let_pass(100);
  pair.sender.flush();
  for (std::size_t i = 0; i < sizes.size(); ++i) pair.receiver.recv(0, gradient_tag(i));
  const MeterReading left = pair.sender.meter().read() - before;
  EXPECT_EQ(left.sent, (std::map{std::pair{std::pair{Traffic::dp_gradient, 1}, out}}));
  EXPECT_EQ(sent(left, Traffic::dp_gradient), out);
  EXPECT_EQ(sent(left, Traffic::control), Count{});
  const MeterReading came = pair.receiver.meter().read();
  EXPECT_EQ(came.received, (std::map{std::pair{std::pair{Traffic::dp_gradient, 0}, in}}));
  EXPECT_EQ(sent(came), Count{});
}

TEST(Engine, RecordsFromQueuingToLeavingAndFromAskingToHaving) {
  Pair pair(options_of(10));
  EXPECT_EQ(pair.receiver.try_recv(0, gradient_tag(3)), std::nullopt);
  EXPECT_EQ(pair.receiver.try_recv(0, gradient_tag(3)), std::nullopt);
  pair.sender.send(request_to(1, gradient_tag(3), message_of(25, 0)));
  const auto only = [](Engine& engine) {
    const std::vector<Record> records = engine.recorder().records();
    EXPECT_EQ(records.size(), 1U);
    return records.at(0);
  };
  EXPECT_EQ(only(pair.sender).state, Record::State::posted);
  EXPECT_EQ(only(pair.receiver).state, Record::State::posted);
  pair.gate.let_pass(3);
  pair.sender.flush();
  pair.receiver.recv(0, gradient_tag(3));
  for (Engine* engine : {&pair.sender, &pair.receiver}) {
    const Record record = only(*engine);
    EXPECT_EQ(record.kind, engine->rank() == 0 ? Record::Kind::send : Record::Kind::recv);
    EXPECT_EQ(record.state, Record::State::done);
    EXPECT_EQ(record.peer, 1 - engine->rank());
    EXPECT_EQ(record.tag, gradient_tag(3));
    EXPECT_EQ(record.bytes, 25U);
  }
}

TEST(Engine, AWaitEndsWithTheDeadlineAndCanBeTakenUpAgain) {
  Pair pair(options_of(10, milliseconds(60)));
  EXPECT_EQ(message_of_error<Timeout>([&] { pair.receiver.recv(0, gradient_tag(4)); }),
            "rank 1 waited in vain for dp.gradient 2 #4 from rank 0");
  pair.gate.let_pass(1);
  pair.sender.send(request_to(1, gradient_tag(4), message_of(20, 4)));
  pair.gate.wait_for(2);
  EXPECT_EQ(
      message_of_error<Timeout>([&] { pair.receiver.recv(0, gradient_tag(4)); }),
      "rank 1 waited in vain for dp.gradient 2 #4 from rank 0, of which 10 B of 20 B had come");
  EXPECT_EQ(pair.receiver.recorder().records().size(), 1U);
  EXPECT_EQ(pair.receiver.recorder().records().at(0).state, Record::State::posted);
}

TEST(Engine, ADeadlineBeginsAnewWithEverySegment) {
  Pair pair(options_of(10, milliseconds(600)));
  pair.sender.send(request_to(1, gradient_tag(4), message_of(40, 4)));
  std::thread slowly([&] {
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(milliseconds(200));
      pair.gate.let_pass(1);
    }
  });
  EXPECT_EQ(pair.receiver.recv(0, gradient_tag(4)), message_of(40, 4));
  slowly.join();
}

TEST(Engine, ASendThatFailsIsToldByTheNextCallAboutThePeer) {
  Pair pair(options_of(10, milliseconds(60)));
  pair.receiver.send(request_to(0, gradient_tag(9), message_of(5, 9)));
  pair.receiver.flush();
  pair.sender.send(request_to(1, gradient_tag(1), message_of(5, 1)));
  pair.sender.send(request_to(1, gradient_tag(2), message_of(5, 2)));
  std::this_thread::sleep_for(milliseconds(300));  // it has failed: flush() has nothing to wait for
  EXPECT_EQ(message_of_error<Timeout>([&] { pair.sender.flush(); }), "the gate stayed shut");
  EXPECT_THROW(pair.sender.flush(), Timeout);  // and again
  EXPECT_THROW(pair.sender.send(request_to(1, gradient_tag(3), {})), Timeout);
  // What came before can still be had; only what would have to be waited for cannot.
  EXPECT_EQ(pair.sender.recv(1, gradient_tag(9)), message_of(5, 9));
  EXPECT_THROW(pair.sender.try_recv(1, gradient_tag(10)), Timeout);
  EXPECT_THROW(pair.sender.recv(1, gradient_tag(10)), Timeout);
  pair.gate.let_pass(1);  // other peers are not concerned
  pair.sender.send(request_to(0, gradient_tag(1), message_of(5, 1)));
  EXPECT_EQ(pair.sender.recv(0, gradient_tag(1)), message_of(5, 1));
  EXPECT_EQ(sent(pair.sender.meter().read()).messages, 1U);
}

TEST(Engine, AFailedSendWakesWhoWaitsForThePeer) {
  Pair pair(options_of(10, milliseconds(300)));
  const std::uint64_t seen = pair.sender.wait_for_arrival(0, {});
  pair.sender.send(request_to(1, gradient_tag(1), message_of(5, 1)));
  EXPECT_NE(pair.sender.wait_for_arrival(seen, in(milliseconds(20'000))), seen);
  EXPECT_THROW(pair.sender.try_recv(1, gradient_tag(10)), Timeout);
}

TEST(Engine, APeerThatDiesEndsWaitsAndNamesIt) {
  run_ranks(3, [](Transport& transport) {
    Engine engine(transport, options_of(10));
    if (engine.rank() == 2) {
      engine.send(request_to(0, gradient_tag(1), message_of(35, 1)));
      engine.flush();
      transport.close();
      return;
    }
    try {
      if (engine.rank() == 0) {
        EXPECT_EQ(engine.recv(2, gradient_tag(1)), message_of(35, 1));
      }
      engine.recv(2, gradient_tag(2));
      ADD_FAILURE() << "got a message from a dead rank";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 2);
    }
    EXPECT_EQ(engine.recorder().records().back().state, Record::State::failed);
    const Rank other = 1 - engine.rank();  // the living still talk
    engine.send(request_to(other, gradient_tag(5), message_of(35, 5)));
    EXPECT_EQ(engine.recv(other, gradient_tag(5)), message_of(35, 5));
    engine.send(request_to(2, gradient_tag(6), message_of(35, 6)));
    EXPECT_THROW(engine.flush(), PeerLost);
  });
}

TEST(Engine, WhatIsPolledIsPostedWhenItComesAndNotBefore) {
  Pair pair(options_of(10));
  for (std::uint64_t number = 0; number < 100; ++number)
    EXPECT_EQ(pair.receiver.poll(0, gradient_tag(number)), std::nullopt);
  EXPECT_TRUE(pair.receiver.recorder().records().empty());
  pair.sender.send(request_to(1, gradient_tag(3), message_of(25, 0)));
  pair.gate.let_pass(1);
  pair.gate.wait_for(2);
  EXPECT_EQ(pair.receiver.poll(0, gradient_tag(3)), std::nullopt);
  ASSERT_EQ(pair.receiver.recorder().records().size(), 1U);
  EXPECT_EQ(pair.receiver.recorder().records()[0].state, Record::State::posted);
  pair.gate.let_pass(2);
  pair.sender.flush();
  EXPECT_EQ(pair.receiver.poll(0, gradient_tag(3)), message_of(25, 0));
  EXPECT_EQ(pair.receiver.recorder().records().at(0).state, Record::State::done);
  pair.transports[0]->send(1, gradient_tag(4), message_of(300, 1), in(milliseconds(1000)));
  EXPECT_THROW(pair.receiver.poll(0, gradient_tag(4)), WireError);
  EXPECT_EQ(pair.receiver.recorder().records().at(1).state, Record::State::failed);
}

TEST(Engine, RefusesWhatIsNoSegment) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[1], options_of(10));
  transports[0]->send(1, gradient_tag(1), message_of(3, 1), in(milliseconds(1000)));
  transports[0]->send(1, gradient_tag(2), message_of(300, 1), in(milliseconds(1000)));
  EXPECT_THROW(engine.recv(0, gradient_tag(1)), WireError);
  EXPECT_THROW(engine.try_recv(0, gradient_tag(2)), WireError);
  EXPECT_EQ(engine.meter().read().received.size(), 0U);
  for (const Record& record : engine.recorder().records())
    EXPECT_EQ(record.state, Record::State::failed);
}

TEST(Engine, TheDeathOfAnyRankEndsEveryWait) {
  const auto transports = make_in_process(3);
  Gate gate(*transports[0]);
  Engine engine(gate, options_of(10));
  Engine other(*transports[1], options_of(10));
  other.send(request_to(0, gradient_tag(0), message_of(25, 0)));
  other.flush();
  EXPECT_EQ(engine.try_recv(1, gradient_tag(1)), std::nullopt);
  gate.let_die(2);
  EXPECT_EQ(engine.recv(1, gradient_tag(0)), message_of(25, 0));  // what has come can be had
  try {
    engine.recv(1, gradient_tag(1));  // though it is rank 1 that we wait for
    FAIL();
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.peer(), 2);
  }
}

TEST(Engine, DropsWhatHasNotLeftWhenItEnds) {
  const auto transports = make_in_process(2);
  Gate gate(*transports[0]);
  auto engine = std::make_unique<Engine>(gate, options_of(10));
  engine->send(request_to(1, gradient_tag(1), message_of(100, 1)));
  gate.wait_for(1);
  std::thread end([&] { engine.reset(); });
  std::this_thread::sleep_for(milliseconds(20));
  gate.let_pass(1);
  end.join();
  EXPECT_TRUE(transports[1]->try_recv(0, gradient_tag(1)).has_value());
  EXPECT_FALSE(transports[1]->try_recv(0, gradient_tag(1)).has_value());
}

// Everybody sends to everybody, then waits for everybody; rank `lazy` does nothing, or only sends.
std::string verdict_of_hang(Rank lazy, bool does_send) {
  std::mutex mutex;
  std::vector<Flight> flights;
  run_ranks(4, [&](Transport& transport) {
    Engine engine(transport, options_of(10, milliseconds(1000)));
    const Rank self = engine.rank();
    Flight flight{.rank = self, .host = "here", .doing = "step 17"};
    try {
      for (Rank r = 0; r < 4; ++r)
        if (r != self && (self != lazy || does_send))
          engine.send(request_to(r, gradient_tag(17), message_of(25, 0)));
      for (Rank r = 0; r < 4; ++r)
        if (r != self && self != lazy) engine.recv(r, gradient_tag(17));
      engine.flush();
    } catch (const std::exception& error) {
      flight.error = error.what();
    }
    flight.records = engine.recorder().records();
    flight.taken_ns = engine.recorder().now_ns();
    const std::lock_guard lock(mutex);
    flights.push_back(parse_flight(to_json(flight)));
  });
  const std::string text = verdict(flights, 4);
  return text.substr(0, text.find('\n'));
}

TEST(Engine, ItsRecordsNameTheRankThatHoldsUpTheOthers) {
  std::vector<std::thread> hangs;  // all at once, since each lasts a deadline
  for (Rank lazy = 0; lazy < 4; ++lazy) {
    hangs.emplace_back([lazy] {
      const std::string line = verdict_of_hang(lazy, false);
      EXPECT_TRUE(line.starts_with("rank " + std::to_string(lazy) + " never ")) << line;
      EXPECT_NE(line.find("dp.gradient 2 #17"), std::string::npos) << line;
    });
    hangs.emplace_back([lazy] {
      const std::string line = verdict_of_hang(lazy, true);
      EXPECT_TRUE(line.starts_with("rank " + std::to_string(lazy) + " never posted recv")) << line;
    });
  }
  for (std::thread& hang : hangs) hang.join();
}

TEST(Meter, ReadingsAreSubtracted) {
  Meter meter;
  meter.sent(Traffic::control, 1, {1, 10, 5});
  meter.spent(Traffic::control, {.active = 3, .exposed = 2, .codec = 1, .decode = 0.5});
  const MeterReading before = meter.read();
  meter.sent(Traffic::control, 1, {2, 20, 6, 4});
  meter.sent(Traffic::preflight, 2, {1, 1, 1});
  meter.received(Traffic::control, 0, {4, 0, 9});
  meter.spent(Traffic::control, {.active = 0.5, .exposed = 0.25, .codec = 0.125, .decode = 0.0625});
  const MeterReading step = meter.read() - before;
  EXPECT_EQ(sent(step, Traffic::control), (Count{2, 20, 6, 4}));
  EXPECT_EQ(sent(step), (Count{3, 21, 7, 4}));
  EXPECT_EQ(step.received.at({Traffic::control, 0}), (Count{4, 0, 9}));
  EXPECT_EQ(step.times.at(Traffic::control).active, 0.5);
  EXPECT_EQ(step.times.at(Traffic::control).exposed, 0.25);
  EXPECT_EQ(step.times.at(Traffic::control).codec, 0.125);
  EXPECT_EQ(step.times.at(Traffic::control).decode, 0.0625);
}

}  // namespace
}  // namespace laconic
