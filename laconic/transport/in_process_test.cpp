#include "laconic/transport/in_process.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/transport/conformance.hpp"

namespace laconic {
namespace {

class InProcessConformance : public testing::TestWithParam<ConformanceCheck> {};

TEST_P(InProcessConformance, Holds) {
  GetParam().run({.name = "in_process",
                  .run = [](int size, const auto& body) { run_ranks(size, body); },
                  .largest = std::uint64_t{256} << 20});
}

INSTANTIATE_TEST_SUITE_P(InProcess, InProcessConformance, testing::ValuesIn(conformance_checks()),
                         name_of_check);

TEST(RunRanks, ThrowsWhatTheFirstRankThrewAndLetsTheOthersGo) {
  const auto body = [](Transport& t) {
    if (t.rank() == 2) throw ConfigError("rank 2 dislikes it");
    t.recv(2, 1, in(std::chrono::milliseconds(60'000)));
  };
  EXPECT_THROW(run_ranks(4, body), ConfigError);
}

TEST(RunRanks, OneRankIsAWorldToo) {
  int runs = 0;
  run_ranks(1, [&](Transport& t) {
    ++runs;
    EXPECT_EQ(t.rank(), 0);
    EXPECT_EQ(t.size(), 1);
    EXPECT_EQ(t.name(), "in_process");
    EXPECT_FALSE(t.has_sum());
  });
  EXPECT_EQ(runs, 1);
}

TEST(InProcess, MessagesToARankThatHasClosedAreRefusedAndNotKept) {
  auto ranks = make_in_process(2);
  ranks[1]->close();
  const Bytes message(10);
  EXPECT_THROW(ranks[0]->send(1, 5, message, in(std::chrono::milliseconds(10))), PeerLost);
  EXPECT_THROW(ranks[0]->try_recv(1, 5), PeerLost);
}

TEST(InProcess, TransportsMayGoInAnyOrder) {
  auto ranks = make_in_process(3);
  ranks[1].reset();
  const Bytes message(10);
  ranks[0]->send(2, 5, message, in(std::chrono::milliseconds(10)));
  ranks[0].reset();
  EXPECT_EQ(ranks[2]->recv(0, 5, in(std::chrono::milliseconds(10))).size(), 10u);
}

}  // namespace
}  // namespace laconic
