#include "laconic/transport/faulty.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/conformance.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr const char* kEveryKind =
    "drop:at=17,to=2; flip:at=5,bit=100; truncate:at=9,bytes=10; delay:at=3,rank=1,ms=200; "
    "close:at=40,traffic=dp.gradient; kill:at=41,rank=0,to=1,traffic=control";

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Problems fault_problems(std::string_view text) {
  try {
    parse_faults(text);
  } catch (const ConfigError& e) {
    return e.problems();
  }
  return {};
}

TEST(Fault, TextAndValueAreInverse) {
  EXPECT_EQ(to_text(parse_faults(kEveryKind)), kEveryKind);
  EXPECT_EQ(parse_faults(to_text(parse_faults(kEveryKind))), parse_faults(kEveryKind));
  EXPECT_TRUE(parse_faults("").empty());
  const FaultSpec expected{.kind = FaultKind::delay, .at = 3, .rank = 1, .amount = 200};
  EXPECT_EQ(parse_faults(" delay : ms = 200 , rank=1, at=3 ;").at(0), expected);
}

TEST(Fault, NamesEverythingThatIsWrong) {
  const Problems expected = {
      {"drp:at=1", "'drp' is unknown, did you mean 'drop'?"},
      {"flip:at=1", "'bit=' is missing"},
      {"kill", "'at=' is missing"},
      {"drop:at=x,bit=3", "at = 'x' is not a number"},
      {"drop:at=x,bit=3", "'bit' is unknown, did you mean 'at'?"},
      {"drop:at=1,traffic=dp.gradients", "'dp.gradients' is unknown, did you mean 'dp.gradient'?"},
      {"drop:at=1,to=99999999999", "to = '99999999999' is not a number"}};
  EXPECT_EQ(to_text(fault_problems("drp:at=1; flip:at=1; kill; drop:at=x,bit=3; "
                                   "drop:at=1,traffic=dp.gradients; drop:at=1,to=99999999999")),
            to_text(expected));
}

TEST(Fault, CheckNamesWhatCannotBe) {
  EXPECT_TRUE(check(parse_faults(kEveryKind), 3).empty());
  const Problems expected = {{"drop:at=0,rank=4,to=3", "there is no rank 4 among 3"},
                             {"drop:at=0,rank=4,to=3", "there is no rank 3 among 3"},
                             {"truncate:at=0,bytes=0", "no byte less is no fault"},
                             {"delay:at=0,ms=3600001", "ms is outside 1 ... 3600000"}};
  EXPECT_EQ(to_text(check(parse_faults("drop:at=0,rank=4,to=3; truncate:at=0,bytes=0; "
                                       "delay:at=0,ms=3600001; flip:at=0,bit=0"),
                          3)),
            to_text(expected));
}

// Every combination of the three restrictions against every send.
TEST(Fault, ConcernsExactlyTheSendsItNames) {
  const auto maybe = [](int i) { return i < 0 ? std::nullopt : std::optional<Rank>(i); };
  for (int rank = -1; rank < 2; ++rank)
    for (int to = -1; to < 2; ++to)
      for (int traffic = -1; traffic < kTrafficClasses; ++traffic) {
        FaultSpec fault{.rank = maybe(rank), .to = maybe(to)};
        if (traffic >= 0) fault.traffic = static_cast<Traffic>(traffic);
        for (int send = 0; send < 4 * kTrafficClasses; ++send) {
          const int from = send & 1, receiver = send >> 1 & 1, about = send >> 2;
          const Tag tag = make_tag({static_cast<Traffic>(about), 3, 4, 5});
          EXPECT_EQ(concerns(fault, from, receiver, tag), (rank < 0 || rank == from) &&
                                                              (to < 0 || to == receiver) &&
                                                              (traffic < 0 || traffic == about));
        }
      }
}

TEST(Fault, StrikesOnceAndCountsOnlyWhatItIsAbout) {
  const FaultSpecs faults = parse_faults("drop:at=3; flip:at=1,to=2,bit=0; kill:at=0,rank=1");
  std::vector<std::uint64_t> counts(faults.size());
  std::string seen;
  for (const Rank to : {1, 2, 1, 2, 2, 1}) {
    seen += '|';
    for (const FaultSpec& fault : strike(faults, counts, 0, to, 0))
      seen += fault.kind == FaultKind::drop ? 'd' : fault.kind == FaultKind::flip ? 'f' : 'k';
  }
  EXPECT_EQ(seen, "||||df||");
}

TEST(Fault, DamageIsWhatItSays) {
  const Bytes message = bytes_of({1, 2, 3});
  const auto after = [&](const char* text) { return damaged(parse_faults(text), message); };
  EXPECT_EQ(after(""), message);
  EXPECT_EQ(after("drop:at=0"), std::nullopt);
  EXPECT_EQ(after("flip:at=0,bit=9"), bytes_of({1, 0, 3}));
  EXPECT_EQ(after("flip:at=0,bit=24"), bytes_of({0, 2, 3}));
  EXPECT_EQ(after("truncate:at=0,bytes=1"), bytes_of({1, 2}));
  EXPECT_EQ(after("truncate:at=0,bytes=10"), Bytes{});
  EXPECT_EQ(after("truncate:at=0,bytes=3; flip:at=0,bit=1"), Bytes{});
  EXPECT_EQ(after("flip:at=0,bit=9; truncate:at=0,bytes=1"), bytes_of({1, 0}));
  EXPECT_EQ(after("delay:at=0,ms=1"), message);
}

std::vector<std::unique_ptr<Transport>> make_faulty_ranks(int size, const std::string& faults) {
  auto ranks = make_in_process(size);
  for (auto& rank : ranks) rank = make_faulty(std::move(rank), parse_faults(faults));
  return ranks;
}

Deadline soon() {
  return in(milliseconds(5000));
}

class FaultyConformance : public testing::TestWithParam<ConformanceCheck> {};

TEST_P(FaultyConformance, HoldsAsLongAsNothingStrikes) {
  GetParam().run({.name = "faulty", .run = [](int size, const auto& body) {
                    run_ranks(make_faulty_ranks(size, "kill:at=1000000000"), body);
                  }});
}

INSTANTIATE_TEST_SUITE_P(Faulty, FaultyConformance, testing::ValuesIn(conformance_checks()),
                         name_of_check);

TEST(Faulty, OnlyTheMessageThatIsStruckSuffers) {
  const auto ranks = make_faulty_ranks(
      2, "drop:at=1,rank=0; flip:at=2,rank=0,bit=1; truncate:at=3,rank=0,bytes=1");
  for (int i = 0; i < 5; ++i) ranks[0]->send(1, 7, bytes_of({i, i}), soon());
  EXPECT_EQ(ranks[1]->recv(0, 7, soon()), bytes_of({0, 0}));
  EXPECT_EQ(ranks[1]->recv(0, 7, soon()), bytes_of({2 ^ 2, 2}));
  EXPECT_EQ(ranks[1]->recv(0, 7, soon()), bytes_of({3}));
  EXPECT_EQ(ranks[1]->recv(0, 7, soon()), bytes_of({4, 4}));
  EXPECT_FALSE(ranks[1]->try_recv(0, 7).has_value());
  for (int i = 0; i < 5; ++i) ranks[1]->send(0, 7, bytes_of({i}), soon());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ranks[0]->recv(1, 7, soon()), bytes_of({i}));
}

TEST(Faulty, DelayTakesItsTimeAndNoMoreOnceClosed) {
  const auto ranks = make_faulty_ranks(2, "delay:at=0,rank=0,ms=40; delay:at=0,rank=1,ms=60000");
  const auto start = std::chrono::steady_clock::now();
  ranks[0]->send(1, 7, bytes_of({1}), soon());
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(40));
  std::thread sender([&] { EXPECT_THROW(ranks[1]->send(0, 7, {}, soon()), PeerLost); });
  std::this_thread::sleep_for(milliseconds(10));
  ranks[1]->close();
  sender.join();
  EXPECT_LE(std::chrono::steady_clock::now() - start, milliseconds(30'000));
}

TEST(Faulty, RankThatClosesIsLostToItselfAndToTheOthers) {
  const auto ranks = make_faulty_ranks(2, "close:at=1,rank=0");
  ranks[0]->send(1, 7, bytes_of({1}), soon());
  try {
    ranks[0]->send(1, 7, bytes_of({2}), soon());
    FAIL();
  } catch (const PeerLost& e) {
    EXPECT_EQ(e.peer(), 0);
  }
  EXPECT_EQ(ranks[1]->recv(0, 7, soon()), bytes_of({1}));
  EXPECT_THROW(ranks[1]->recv(0, 7, soon()), PeerLost);
}

// In a child of its own, which says how many sends it survived.
int sends_before_death(const std::string& faults) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const auto ranks = make_faulty_ranks(1, faults);
    for (int i = 0; i < 5; ++i) {
      ranks[0]->send(0, 7, {}, soon());
      if (write(pipe_ends[1], "x", 1) != 1) _exit(1);
    }
    _exit(0);
  }
  close(pipe_ends[1]);
  int sends = 0, status = 0;
  for (char c; read(pipe_ends[0], &c, 1) == 1;) ++sends;
  close(pipe_ends[0]);
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? sends : -1;
}

TEST(Faulty, KilledProcessDiesAtThatSendAndOfThatSignal) {
  EXPECT_EQ(sends_before_death("kill:at=0"), 0);
  EXPECT_EQ(sends_before_death("kill:at=3"), 3);
  EXPECT_EQ(sends_before_death("kill:at=99"), -1);
}

TEST(Faulty, HasNoNativeSumAndSaysWhatItIs) {
  const auto ranks = make_faulty_ranks(1, "");
  EXPECT_FALSE(ranks[0]->has_sum());
  EXPECT_EQ(ranks[0]->name(), "faulty in_process");
  EXPECT_THROW(make_faulty_ranks(2, "drop:at=0,to=2"), std::logic_error);
}

}  // namespace
}  // namespace laconic
