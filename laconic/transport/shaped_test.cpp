#include "laconic/transport/shaped.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/conformance.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::vector<std::unique_ptr<Transport>> make_ranks(int size, const std::string& network) {
  auto ranks = make_in_process(size);
  for (auto& rank : ranks) rank = make_shaped(std::move(rank), parse_shape(network));
  return ranks;
}

Deadline patience() {
  return in(milliseconds(30'000));
}

double seconds_of(const std::function<void()>& act) {
  const auto start = Clock::now();
  act();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The machine may be busy with other things, which only ever makes it slower: the quickest of all
// attempts within some seconds counts, or the first that is quick enough. Between them the wires
// rest.
double quickest(double enough, const std::function<double()>& attempt) {
  const auto end = Clock::now() + std::chrono::seconds(5);
  double best = attempt();
  while (best > enough && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
    best = std::min(best, attempt());
  }
  return best;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlack = 20;  // such a build is slow itself; that it is not too quick still holds
#else
constexpr double kSlack = 1;
#endif

void send_many(Transport& t, Rank to, Tag tag, int messages, std::size_t bytes) {
  const Bytes message(bytes);
  for (int i = 0; i < messages; ++i) t.send(to, tag, message, patience());
}

void recv_many(Transport& t, Rank from, Tag tag, int messages) {
  for (int i = 0; i < messages; ++i) t.recv(from, tag, patience());
}

class ShapedConformance : public testing::TestWithParam<ConformanceCheck> {};

TEST_P(ShapedConformance, Holds) {
  GetParam().run({.name = "shaped", .run = [](int size, const auto& body) {
                    run_ranks(make_ranks(size, "rate=20gbit,latency=300us,jitter=200us"), body);
                  }});
}

INSTANTIATE_TEST_SUITE_P(Shaped, ShapedConformance, testing::ValuesIn(conformance_checks()),
                         name_of_check);

// 625,000 bytes at 100 Mbit/s: 50 ms. In large messages, and in small ones that take a tenth of a
// millisecond each, hardly more than the error of a sleep: they can only be right on average.
TEST(Shaped, KeepsToItsRateWithinThreePercent) {
  for (const auto& [messages, bytes] : {std::pair(50, 12'500), std::pair(500, 1250)}) {
    const auto ranks = make_ranks(2, "rate=100mbit");
    const double seconds = quickest(
        0.0515, [&] { return seconds_of([&] { send_many(*ranks[0], 1, 1, messages, bytes); }); });
    EXPECT_GE(seconds, 0.0485) << bytes;
    EXPECT_LE(seconds, kSlack * 0.0515) << bytes;
  }
}

// A message of M bytes takes M / W + a: three decades of M, of which the smallest is all latency
// and the largest all rate. Within 5 % and 60 us, by which a sleeper wakes late.
TEST(Shaped, AMessageTakesItsBytesOverTheRateAndTheLatency) {
  constexpr double kRate = 400e6 / 8, kLatency = 0.002;
  for (const std::size_t bytes : {1'000u, 10'000u, 100'000u, 1'000'000u}) {
    const double wanted = static_cast<double>(bytes) / kRate + kLatency;
    const auto ranks = make_ranks(2, "rate=400mbit,latency=2ms");
    const double most = kSlack * (1.05 * wanted + 60e-6);
    const double seconds = quickest(most, [&] {
      return seconds_of([&] {
        std::thread sender([&] { send_many(*ranks[0], 1, 1, 1, bytes); });
        recv_many(*ranks[1], 0, 1, 1);
        sender.join();
      });
    });
    EXPECT_GE(seconds, 0.95 * wanted) << bytes;
    EXPECT_LE(seconds, most) << bytes;
  }
}

TEST(Shaped, SmallPausesOfASenderDoNotAddUpToALowerRate) {
  const auto ranks = make_ranks(2, "rate=1gbit");
  const double seconds = quickest(kSlack * 0.0515, [&] {  // 100 x 62,500 bytes at 1 Gbit/s: 50 ms
    return seconds_of([&] {
      const Bytes message(62'500);
      for (int i = 0; i < 100; ++i) {
        ranks[0]->send(1, 1, message, patience());
        const auto start = Clock::now();
        while (Clock::now() - start < std::chrono::microseconds(20)) {
        }
      }
    });
  });
  EXPECT_GE(seconds, 0.0485);
  EXPECT_LE(seconds, kSlack * 0.0515);
}

TEST(Shaped, IdleTimeIsNotSavedUp) {
  const auto ranks = make_ranks(2, "rate=100mbit");
  send_many(*ranks[0], 1, 1, 1, 1000);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(seconds_of([&] { send_many(*ranks[0], 1, 1, 1, 125'000); }), 0.0099);
}

// A sender that comes every 80 us with little could otherwise save up as much as it liked. (What it
// overslept it may save, so that the slowest attempt counts.)
TEST(Shaped, PausesThatAreShortAreNotSavedUpEither) {
  const auto ranks = make_ranks(2, "rate=100mbit");
  double slowest = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (int i = 0; i < 300; ++i) {
      send_many(*ranks[0], 1, 1, 1, 12);  // 1 us
      const auto start = Clock::now();
      while (Clock::now() - start < std::chrono::microseconds(80)) {
      }
    }
    slowest = std::max(slowest, seconds_of([&] { send_many(*ranks[0], 1, 1, 1, 125'000); }));
  }
  EXPECT_GE(slowest, 0.009);
}

TEST(Shaped, LatencyComesOnTopOfTheTimeOnTheWire) {
  const auto ranks = make_ranks(2, "rate=100mbit,latency=10ms");
  Tag tag = 0;
  double sending = 0;
  const double seconds = quickest(kSlack * 0.016, [&] {
    ++tag;
    return seconds_of([&] {
      sending = seconds_of([&] { send_many(*ranks[0], 1, tag, 1, 62'500); });  // 5 ms
      recv_many(*ranks[1], 0, tag, 1);
    });
  });
  EXPECT_GE(sending, 0.0049);
  EXPECT_GE(seconds, 0.015);
  EXPECT_LE(seconds, kSlack * 0.016);
}

TEST(Shaped, LatencyDoesNotLowerTheRate) {
  const auto ranks = make_ranks(2, "rate=100mbit,latency=20ms");
  Tag tag = 0;
  const double seconds = quickest(kSlack * 0.0715, [&] {
    ++tag;
    return seconds_of([&] {
      send_many(*ranks[0], 1, tag, 50, 12'500);
      recv_many(*ranks[1], 0, tag, 50);
    });
  });
  EXPECT_GE(seconds, 0.069);
  EXPECT_LE(seconds, kSlack * 0.0715);
}

// Both directions at once take as long as one.
TEST(Shaped, IsFullDuplex) {
  const auto ranks = make_ranks(2, "rate=100mbit");
  Tag tag = 0;
  const double seconds = quickest(kSlack * 0.0525, [&] {
    ++tag;
    return seconds_of([&] {
      run_ranks(ranks, [&](Transport& t) {
        std::thread sender([&] { send_many(t, 1 - t.rank(), tag, 50, 12'500); });
        recv_many(t, 1 - t.rank(), tag, 50);
        sender.join();
      });
    });
  });
  EXPECT_GE(seconds, 0.0485);
  EXPECT_LE(seconds, kSlack * 0.0525);
}

TEST(Shaped, ThreadsShareTheRateOfALink) {
  const auto ranks = make_ranks(2, "rate=100mbit");
  const double seconds = quickest(kSlack * 0.0515, [&] {
    return seconds_of([&] {
      std::thread other([&] { send_many(*ranks[0], 1, 1, 25, 12'500); });
      send_many(*ranks[0], 1, 2, 25, 12'500);
      other.join();
    });
  });
  EXPECT_GE(seconds, 0.0485);
  EXPECT_LE(seconds, kSlack * 0.0515);
}

double seconds_to_two_receivers(const std::string& network) {
  const auto ranks = make_ranks(3, network);
  return seconds_of([&] {
    std::thread other([&] { send_many(*ranks[0], 1, 1, 20, 12'500); });
    send_many(*ranks[0], 2, 1, 20, 12'500);
    other.join();
  });
}

TEST(Shaped, LinksHaveRatesOfTheirOwnAndAHostHasOne) {
  const auto quickest_of = [](double enough, const std::string& network) {
    return quickest(enough, [&] { return seconds_to_two_receivers(network); });
  };
  const double by_link = quickest_of(kSlack * 0.022, "rate=100mbit");
  EXPECT_GE(by_link, 0.0194);
  EXPECT_LE(by_link, kSlack * 0.022);
  const double by_host = quickest_of(kSlack * 0.042, "rate=100mbit,egress=host");
  EXPECT_GE(by_host, 0.0388);
  EXPECT_LE(by_host, kSlack * 0.042);
  const double one_slow = quickest_of(kSlack * 0.042, "rate=1gbit; 0>2: rate=50mbit");
  EXPECT_GE(one_slow, 0.0388);
  EXPECT_LE(one_slow, kSlack * 0.042);
}

TEST(Shaped, JitterDelaysByAtMostItselfAndKeepsTheOrder) {
  const auto ranks = make_ranks(2, "latency=2ms,jitter=6ms,seed=3");
  std::vector<double> delays;
  for (std::uint8_t i = 0; i < 16; ++i) {
    const Bytes message(1, static_cast<std::byte>(i));
    delays.push_back(seconds_of([&] {
      ranks[0]->send(1, 1, message, patience());
      EXPECT_EQ(ranks[1]->recv(0, 1, patience()), message);
    }));
    EXPECT_GE(delays.back(), 0.002);
  }
  std::ranges::sort(delays);
  EXPECT_LE(delays[8], kSlack * 0.008);  // the median: a single one may have met a busy machine
  EXPECT_GE(delays.back() - delays.front(), 0.002);
  for (std::uint8_t i = 0; i < 100; ++i)
    ranks[0]->send(1, 2, Bytes(1, static_cast<std::byte>(i)), patience());
  for (std::uint8_t i = 0; i < 100; ++i)
    ASSERT_EQ(ranks[1]->recv(0, 2, patience()), Bytes(1, static_cast<std::byte>(i)));
}

TEST(Shaped, MessageThatCannotLeaveInTimeIsATimeoutAndCostsNoTimeOnTheWire) {
  const auto ranks = make_ranks(2, "rate=1mbit");
  const Bytes message(125'000);  // a second
  EXPECT_THROW(ranks[0]->send(1, 1, message, in(milliseconds(10))), Timeout);
  EXPECT_LE(seconds_of([&] { send_many(*ranks[0], 1, 1, 1, 125); }), 0.5);
}

TEST(Shaped, ClosingLetsSendersGoAndDeliversWhatHasLeft) {
  const auto ranks = make_ranks(2, "rate=1mbit,latency=30ms");
  send_many(*ranks[0], 1, 7, 1, 0);
  std::thread sender([&] {
    try {
      send_many(*ranks[0], 1, 1, 1, 1'250'000);  // ten seconds
      ADD_FAILURE() << "sent";
    } catch (const PeerLost& e) {
      EXPECT_EQ(e.peer(), 0);
    }
  });
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_LE(seconds_of([&] { ranks[0]->close(); }), 2.0);
  sender.join();
  EXPECT_EQ(ranks[1]->recv(0, 7, patience()).size(), 0u);
  EXPECT_THROW(ranks[1]->recv(0, 1, patience()), PeerLost);
}

TEST(Shaped, SelfSendMeetsNoNetworkAndThereIsNoNativeSum) {
  const auto ranks = make_ranks(1, "rate=1kbit,latency=100s");
  EXPECT_LE(seconds_of([&] {
              send_many(*ranks[0], 0, 1, 1, 1 << 20);
              recv_many(*ranks[0], 0, 1, 1);
            }),
            5.0);
  EXPECT_FALSE(ranks[0]->has_sum());
  EXPECT_EQ(ranks[0]->name(), "shaped in_process");
}

TEST(Shaped, NetworkThatCannotBeIsOurMistake) {
  EXPECT_THROW(make_ranks(2, "0-5: rate=1mbit"), std::logic_error);
}

}  // namespace
}  // namespace laconic
