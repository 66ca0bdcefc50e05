// A boundary when something goes wrong (T14): damaged, cut and lost messages, ends that have come
// apart, peers that do not answer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/runtime/test_edge.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

// Three steps of four microbatches of two samples, the same in each.
std::vector<std::vector<Keys>> some_keys() {
  return std::vector<std::vector<Keys>>(3, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
}

// As if these samples had never been seen, at both ends.
std::function<void(Ends&, std::uint64_t)> forgetting(const Keys& keys, std::uint64_t at_step) {
  return [=](Ends& ends, std::uint64_t step) {
    if (step != at_step) return;
    for (const std::uint64_t key : keys) ends.references()->forget(key);
  };
}

std::string text_of_failure(const Course& course) {
  try {
    run_course(course);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// All that a rank has sent of activations, before encoding.
std::uint64_t raw_bytes_sent(const Log& log) {
  std::uint64_t bytes = 0;
  for (const MeterReading& step : log.meter)
    bytes += step.sent.at({Traffic::pp_activation, 1}).raw_bytes;
  return bytes;
}

struct Fault {
  std::string text;
  Keys repaired;  // in step 1
  std::uint64_t refused = 0;
};

// Message 5 is the second microbatch of step 1, samples 3 and 4: two differences of 138 bytes.
TEST(EdgeFault, DamageIsRepairedAsIfTheSampleWereNew) {
  const std::string message = "rank=0,traffic=pp.activation,at=5";
  const std::string request = "rank=1,traffic=pp.activation,at=0";
  const std::vector<Fault> faults = {
      {"flip:" + message + ",bit=0", {3, 4}, 2},
      {"flip:" + message + ",bit=1000", {3, 4}, 2},  // behind it no frame can be found
      {"flip:" + message + ",bit=2200", {4}, 1},
      {"truncate:" + message + ",bytes=1", {3, 4}, 2},  // the engine's trailer is cut
      {"truncate:" + message + ",bytes=100", {3, 4}, 2},
      {"truncate:" + message + ",bytes=100000", {3, 4}, 2},
      {"flip:" + message + ",bit=0; flip:" + request + ",bit=3", {3, 4}, 4},
      {"flip:" + message + ",bit=0; truncate:" + request + ",bytes=5", {3, 4}, 4},
      {"flip:" + message + ",bit=2200; flip:" + request + ",bit=0", {4}, 2},  // asks for sample 3
  };
  for (const int ahead : {0, 1, 3})
    for (const Fault& fault : faults) {
      SCOPED_TRACE(testing::Message() << fault.text << ", ahead " << ahead);
      Course undisturbed{
          .keys = some_keys(), .ahead = ahead, .before_step = forgetting(fault.repaired, 1)};
      const Logs expected = run_course(undisturbed);
      const Course course{.keys = some_keys(), .ahead = ahead, .faults = fault.text};
      const Logs logs = run_course(course);
      expect_equal_references(logs);
      EXPECT_EQ(logs[0].references, expected[0].references);
      EXPECT_EQ(logs[1].received, expected[1].received);
      EXPECT_EQ(logs[0].received, expected[0].received);
      EXPECT_EQ(logs[1].refused, fault.refused);
      EXPECT_EQ(logs[0].resent, fault.repaired.size());
      EXPECT_EQ(raw_bytes_sent(logs[0]), raw_bytes_sent(expected[0]));
    }
}

// Answers are damaged as well, as often as it takes to need the last turn.
TEST(EdgeFault, AnswersThatAreDamagedAreAskedForAgain) {
  for (std::uint64_t damaged = 1; damaged <= kEdgeTurns + 1; ++damaged) {
    // Sends of rank 0 in order: with nothing ahead the answers follow the message at once.
    std::string faults;
    for (std::uint64_t i = 0; i < damaged; ++i)
      faults += (i == 0 ? "" : "; ") + std::string("flip:rank=0,traffic=pp.activation,bit=0,at=") +
                std::to_string(5 + i);
    const Course course{.keys = some_keys(), .faults = faults};
    if (damaged > kEdgeTurns) {
      const std::string text = text_of_failure(course);
      for (const char* part : {"pp.activation.0-1, step 1, microbatch 1:", "after 3 further",
                               "rank 1 has not got 2 of 2 samples from rank 0: 3, 4;", "magic"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
      continue;
    }
    const Logs logs = run_course(course);
    expect_equal_references(logs);
    EXPECT_EQ(logs[1].refused, 2 * damaged);
    EXPECT_EQ(logs[0].resent, 2 * damaged);
    EXPECT_EQ(logs[0].references.back().at(3).visits, 2u);
    EXPECT_EQ(logs[0].references.back().at(5).visits, 3u);
  }
}

// The end of one epoch and the beginning of the next in one step, even in one microbatch: whichever
// message is damaged, and wherever, both ends agree after every step and every number is sound.
TEST(EdgeFault, RepeatedSamplesConvergeWhicheverMessageIsDamaged) {
  const std::vector<std::vector<Keys>> keys(
      3, {{1, 2, 1}, {3, 1, 2}, {2, 2, 2}, {4, 1, 3}, {1, 1, 1}});
  for (const int ahead : {0, 2, 4})
    for (int at = 0; at < 15; ++at)
      for (const int bit : {0, 1500, 2200}) {
        const Course course{.keys = keys,
                            .ahead = ahead,
                            .faults = "flip:rank=0,traffic=pp.activation,at=" + std::to_string(at) +
                                      ",bit=" + std::to_string(bit)};
        SCOPED_TRACE(testing::Message() << course.faults << ", ahead " << ahead);
        const Logs logs = run_course(course);
        expect_equal_references(logs);
        EXPECT_GT(logs[1].refused, 0u);
        for (std::size_t step = 0; step < keys.size(); ++step)
          for (std::size_t i = 0; i < keys[step].size(); ++i) {
            const Floats wanted = floats_of(activations(keys[step][i], step));
            for (std::size_t j = 0; j < wanted.size(); ++j)
              ASSERT_NEAR(logs[1].received[step][i][j], wanted[j], 0.1) << step << " " << i;
          }
      }
}

struct Apart {
  const char* name;
  Rank rank;  // at whose end
  std::function<void(DeltaStore&)> act;
  std::uint64_t refused;
};

TEST(EdgeFault, EndsThatCameApartAreFoundAndJoined) {
  const auto forget = [](DeltaStore& store) { store.forget(4); };
  const auto rot = [](DeltaStore& store) {
    const DeltaStore::Record old = store.find(4).value();
    const auto staged = store.stage(4, old.visits).value();
    std::copy(old.bytes.begin(), old.bytes.end(), staged.begin());
    staged[17] ^= std::byte{1};  // one bit of one number: only the hash can tell
    store.commit();
  };
  const auto count = [](DeltaStore& store) {
    const DeltaStore::Record old = store.find(4).value();
    const auto staged = store.stage(4, old.visits + 1).value();
    std::copy(old.bytes.begin(), old.bytes.end(), staged.begin());
    store.commit();
  };
  const std::vector<Apart> cases = {
      {"the receiver has forgotten", 1, forget, 1},
      {"the sender has forgotten", 0, forget, 0},  // and sends a first visit by itself
      {"a bit rotted at the receiver", 1, rot, 1},
      {"a bit rotted at the sender", 0, rot, 1},
      {"the receiver counts another visit", 1, count, 1},
  };
  for (const int ahead : {0, 2}) {
    const Course undisturbed{
        .keys = some_keys(), .ahead = ahead, .before_step = forgetting({4}, 1)};
    const Logs expected = run_course(undisturbed);
    for (const Apart& apart : cases) {
      SCOPED_TRACE(apart.name);
      Course course{.keys = some_keys(), .ahead = ahead};
      course.before_step = [&](Ends& ends, std::uint64_t step) {
        if (step == 1 && ends.engine.rank() == apart.rank) apart.act(*ends.references());
      };
      const Logs logs = run_course(course);
      expect_equal_references(logs);
      EXPECT_EQ(logs[1].received, expected[1].received);
      EXPECT_EQ(logs[1].refused, apart.refused);
      EXPECT_EQ(logs[0].resent, apart.refused);
    }
  }
}

TEST(EdgeFault, RefusalsInAnAbandonedStepLeaveEndsThatAgree) {
  Course course{.keys = some_keys(),
                .ahead = 2,
                .faults = "flip:rank=0,traffic=pp.activation,at=5,bit=0",
                .is_abandoned = [](std::uint64_t step) { return step == 1; }};
  const Logs logs = run_course(course);
  expect_equal_references(logs);
  EXPECT_FALSE(logs[0].references[1].contains(3)) << "forgotten for good";
  EXPECT_EQ(logs[0].references[1].at(1), logs[0].references[0].at(1));
  EXPECT_EQ(logs[0].references[2].at(3).visits, 1u);
  EXPECT_EQ(logs[0].references[2].at(1).visits, 2u);
}

TEST(EdgeFault, AFullBudgetStaysFullOfTheSameSamplesAtBothEnds) {
  for (int at = 0; at < 12; ++at) {
    const Course course{
        .activation = delta_link({.first = Half{}, .budget_bytes = 5 * 4096}),
        .keys = some_keys(),
        .ahead = 3,
        .faults = "flip:rank=0,traffic=pp.activation,bit=0,at=" + std::to_string(at)};
    const Logs logs = run_course(course);
    expect_equal_references(logs);
    EXPECT_EQ(logs[0].references.back().size(), 5u);
    EXPECT_EQ(logs[1].refused, 2u);
  }
}

TEST(EdgeFault, WithoutADeltaMemoryDamageIsTheEnd) {
  for (const char* codec : {"raw", "low_rank:rank=2", "quantise:bits=8,block=32"}) {
    Course course{.activation = {"pp.activation.0-1", parse_codec(codec), NoMemory{}},
                  .keys = some_keys(),
                  .ahead = 1,
                  .faults = "flip:rank=0,traffic=pp.activation,at=5,bit=700"};
    if (std::string(codec) != "raw") course.activation.memory = ErrorFeedback{};
    const std::string text = text_of_failure(course);
    EXPECT_NE(text.find("pp.activation 3 #5 from rank 0: CRC-32C"), std::string::npos) << text;
  }
}

// What each rank ended with.
std::vector<std::string> failures_of(const Course& course) {
  auto transports = make_in_process(2);
  for (auto& transport : transports)
    transport = make_faulty(std::move(transport), parse_faults(course.faults));
  std::vector<std::string> texts(2);
  run_ranks(transports, [&](Transport& transport) {
    Log log;
    Ends ends(course, transport);
    try {
      for (std::uint64_t step = 0; step < course.keys.size(); ++step)
        run_step(ends, course, step, log);
    } catch (const Timeout& error) {
      EXPECT_EQ(error.peer(), 1 - transport.rank());
      texts[static_cast<std::size_t>(transport.rank())] = error.what();
    } catch (const PeerLost&) {
    }
    std::this_thread::sleep_for(milliseconds(150));  // so that the other times out, too
  });
  return texts;
}

TEST(EdgeFault, ALostMessageIsATimeoutThatNamesIt) {
  const std::string damage = "flip:rank=0,traffic=pp.activation,at=5,bit=0; ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"drop:rank=0,traffic=pp.activation,at=5", "pp.activation 3 #5 from rank 0"},
      {damage + "drop:rank=0,traffic=pp.activation,at=6", "pp.activation 3 #5.2 from rank 0"},
      {damage + "drop:rank=1,traffic=pp.activation,at=0", "pp.activation 3 #5.2 from rank 0"},
  };
  for (const auto& [faults, named] : cases) {
    const Course course{.keys = some_keys(), .faults = faults, .deadline = milliseconds(100)};
    const std::vector<std::string> texts = failures_of(course);
    EXPECT_NE(texts[1].find("rank 1 waited in vain for " + named + ": nothing moved for 100 ms"),
              std::string::npos)
        << texts[1];
    EXPECT_NE(texts[0].find("pp.gradient 3 #5 from rank 1"), std::string::npos) << texts[0];
  }
}

}  // namespace
}  // namespace laconic
