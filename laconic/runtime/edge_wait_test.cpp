// How an edge waits: what ends it, what happens meanwhile, and how the time is counted.
#include <chrono>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/base/gpu_error.hpp"
#include "laconic/engine/test_gate.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/runtime/test_edge.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr TagFields kAnyTag{.traffic = Traffic::control, .unit = 7, .number = 1};

Tag numbered(std::uint64_t number) {
  return make_tag({.traffic = Traffic::control, .unit = 7, .number = number});
}

void send_byte(Engine& engine, Rank to, Tag tag) {
  engine.send({.to = to, .tag = tag, .message = std::make_shared<const Bytes>(1)});
}

// Many waits that end as soon as they begin: a wake-up that was lost would cost a deadline.
TEST(EdgeWait, NoWakeUpIsLost) {
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport);
    const Rank other = 1 - engine.rank();
    std::uint64_t served = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      if (engine.rank() == 0) send_byte(engine, other, numbered(i));
      wait_for(engine, other, numbered(i), [&] { ++served; });
      if (engine.rank() == 1) send_byte(engine, other, numbered(i));
    }
    EXPECT_LT(served, 3000u * 10) << "it turns round instead of sleeping";
    engine.flush();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(EdgeWait, OthersAreServedMeanwhileAndTheDeadlineBeginsAnewWhenSomethingMoves) {
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport, {.deadline = milliseconds(150)});
    if (engine.rank() == 0) {
      for (std::uint64_t i = 1; i <= 6; ++i) {
        std::this_thread::sleep_for(milliseconds(50));
        send_byte(engine, 1, numbered(i));
      }
      send_byte(engine, 1, make_tag(kAnyTag));
      engine.flush();
      return;
    }
    std::uint64_t next = 1;
    const auto serve = [&] {
      while (next <= 5 && engine.poll(0, numbered(next + 1))) ++next;
    };
    EXPECT_EQ(wait_for(engine, 0, numbered(1), serve).size(), 1u);
    wait_for(engine, 0, make_tag(kAnyTag), serve);  // 300 ms in all
    EXPECT_GE(next, 5u);
  });
}

TEST(EdgeWait, TheDeathOfAnyRankEndsIt) {
  const auto transports = make_in_process(3);
  Gate gate(*transports[0]);
  Engine engine(gate, {.deadline = milliseconds(20'000)});
  std::thread death([&] {
    std::this_thread::sleep_for(milliseconds(30));
    transports[2]->close();  // wakes
  });
  int served = 0;
  try {
    wait_for(engine, 1, numbered(1), [&] {
      if (++served == 1) gate.let_die(2);
    });
    ADD_FAILURE();
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.peer(), 2);
  }
  death.join();
}

// A GPU that fails while its rank waits for another: the deadline is far away.
TEST(EdgeWait, WhatACourierCouldNotSendEndsIt) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0], {.deadline = milliseconds(20'000)});
  Courier courier([&] { engine.wake(); });
  int done = 0;
  courier.hand_over([&] { ++done; });
  courier.drain();
  courier.check();
  courier.hand_over([] {
    std::this_thread::sleep_for(milliseconds(30));
    throw GpuError("CUDA refused work for a message");
  });
  courier.hand_over([&] { ++done; });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(wait_for(engine, 1, numbered(1), [&] { courier.check(); }), GpuError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(10'000));
  courier.drain();  // told once
  EXPECT_EQ(done, 2);
}

TEST(EdgeWait, TimeIsActiveFromPostingAndExposedInWaiting) {
  const Course course{.activation = {"pp.activation.0-1", Half{}, NoMemory{}},
                      .keys = {{{0}, {1}}}};
  run_ranks(2, [&](Transport& transport) {
    Ends ends(course, transport);
    ends.sender.begin(0);
    ends.receiver.begin(0);
    if (ends.engine.rank() == 0) {
      for (int i = 0; i < 2; ++i) {
        std::this_thread::sleep_for(milliseconds(60));
        ends.sender.send(activations({1}, 0), {.number = i}, 0);
      }
      ends.engine.flush();
      EXPECT_GT(ends.engine.meter().read().times.at(Traffic::pp_activation).codec, 0);
      return;
    }
    ends.receiver.post(0);
    ends.receiver.post(1);
    ends.receiver.recv(rows_of(1), at::kCPU, {.number = 0}, [] {});
    std::this_thread::sleep_for(milliseconds(120));  // computes; the second has come meanwhile
    ends.receiver.recv(rows_of(1), at::kCPU, {.number = 1}, [] {});
    const Times times = ends.engine.meter().read().times.at(Traffic::pp_activation);
    EXPECT_GT(times.exposed, 0.04);
    EXPECT_GT(times.active, times.exposed + 0.1);
    EXPECT_GT(times.codec, 0);
  });
}

}  // namespace
}  // namespace laconic
