#include "laconic/world/world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {
namespace {

// Ranks whose deadline is short against what rank 0 is at.
void with_deadline(std::chrono::milliseconds deadline, const std::function<void(World&)>& body) {
  run_ranks(4, [&](Transport& transport) {
    Engine engine(transport, {.deadline = deadline});
    ProgressThread progress_thread(engine);
    World world({.pp = 2, .dp = 2}, progress_thread);
    body(world);
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

TEST(World, NobodyLosesPatienceWhileTheFirstDecides) {
  using std::chrono::milliseconds;
  with_deadline(milliseconds(800), [](World& world) {
    const auto slowly = [](const char* answer) {
      std::this_thread::sleep_for(milliseconds(1800));
      return std::string(answer);
    };
    EXPECT_EQ(world.decide_on_rank_0([&] { return slowly("one"); }), "one");
    // A decision within a decision, and an exchange of all there.
    const auto inner = [&] {
      EXPECT_EQ(world.decide_on_rank_0([&] { return slowly("inner"); }), "inner");
      EXPECT_EQ(world.gather_values(world.rank()), (std::vector<int>{0, 1, 2, 3}));
    };
    if (!world.is_first()) inner();
    EXPECT_EQ(world.decide_on_rank_0([&] {
      inner();
      return slowly("outer");
    }),
              "outer");
  });
}

TEST(World, WhatTheFirstRefusesAllRefuse) {
  with_deadline(std::chrono::seconds(10), [](World& world) {
    const auto refuse = []() -> std::string { throw ConfigError("3 is not 4"); };
    try {
      world.decide_on_rank_0(refuse);
      ADD_FAILURE() << world.rank();
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()), "3 is not 4") << world.rank();
    }
    EXPECT_EQ(world.decide_on_rank_0([] { return std::string("and on"); }), "and on");
  });
}

TEST(World, WhoeverWaitsForTheDeciderSeesThatItLives) {
  using std::chrono::milliseconds;
  const Tag tag = make_tag({.traffic = Traffic::control, .unit = 99});
  with_deadline(milliseconds(800), [&](World& world) {
    if (!world.is_first()) {
      EXPECT_EQ(world.recv_from_decider(tag).size(), 3U);
    }
    EXPECT_EQ(world.decide_on_rank_0([&] {
      std::this_thread::sleep_for(milliseconds(1800));
      for (Rank to = 1; to < world.size(); ++to)
        world.engine().send({.to = to, .tag = tag, .message = std::make_shared<const Bytes>(3)});
      return std::string("done");
    }),
              "done");
  });
}

TEST(World, WhoeverWaitsForADeciderThatRefusesRefusesToo) {
  const Tag tag = make_tag({.traffic = Traffic::control, .unit = 99});
  with_deadline(std::chrono::seconds(10), [&](World& world) {
    try {
      if (!world.is_first()) world.recv_from_decider(tag);
      world.decide_on_rank_0([]() -> std::string { throw ConfigError("3 is not 4"); });
      ADD_FAILURE() << world.rank();
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()), "3 is not 4") << world.rank();
    }
    EXPECT_EQ(world.decide_on_rank_0([] { return std::string("and on"); }), "and on");
  });
}

}  // namespace
}  // namespace laconic
