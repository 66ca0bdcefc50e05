// Ranks as processes, because only a process can be killed or stopped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/rendezvous/gloo_peer.hpp"
#include "laconic/rendezvous/test_ranks.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Rank kVictim = 2;
constexpr Tag kNoise = 1, kCalm = 2, kReady = 3, kNever = 4, kHasMet = 5;

Deadline patience() {
  return in(milliseconds(20'000));
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void meet_all(Transport& t, Tag tag) {
  for (Rank r = 0; r < t.size(); ++r) t.send(r, tag, {}, patience());
  for (Rank r = 0; r < t.size(); ++r) t.recv(r, tag, patience());
}

// All meet, and then the signal ends or stops the victim. It waits for the others' word that they
// have met: a signal takes its sending thread too, and what it still had to send them with it.
void meet_and_lose_the_victim(Transport& t, int signal) {
  meet_all(t, kReady);
  if (t.rank() != kVictim) return t.send(kVictim, kHasMet, {}, patience());
  for (Rank r = 0; r < t.size(); ++r)
    if (r != kVictim) t.recv(r, kHasMet, patience());
  ::raise(signal);
}

void talk(Transport& t, Rank other) {
  for (int i = 0; i < 20; ++i) {
    t.send(other, kCalm, Bytes(static_cast<std::size_t>(i) * 40'000, std::byte{5}), patience());
    require(t.recv(other, kCalm, patience()).size() == static_cast<std::size_t>(i) * 40'000,
            "a message between the living has another size");
  }
}

// Small and large messages both ways until the peer is lost.
void make_noise(Transport& t, Rank peer) {
  for (std::size_t i = 0;; ++i) {
    t.send(peer, kNoise, Bytes(i % 5 * 300'000), patience());
    t.recv(peer, kNoise, patience());
  }
}

template <class Error, class Act>
int accused_by(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.peer();
  }
  return -2;
}

// More by hand: LACONIC_TEST_ROUNDS=100
int rounds() {
  const char* const text = std::getenv("LACONIC_TEST_ROUNDS");
  return text == nullptr ? 4 : std::atoi(text);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::int64_t peak_bytes() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<std::int64_t>(used.ru_maxrss) * 1024;
}

// Every slot is written to, by messages of four full fragments; yet only the warm ones, of which a
// rank has 12 MB, what waits for the socket and a message or two for each peer are held. Slots that
// kept their pages would be 8 MB for each of the seven peers.
TEST(GlooProcesses, APeerCostsWhatIsUnderWayAndNotWhatCouldBe) {
  RankProcesses ranks(8, [](Transport& t) {
    const std::int64_t before = peak_bytes();
    const Bytes message(4 * kFragmentPayload, std::byte{3});
    for (int turn = 0; turn < 10; ++turn)
      for (Rank step = 1; step < t.size(); ++step) {
        const Rank to = (t.rank() + step) % t.size(), from = (t.rank() - step + 8) % t.size();
        t.send(to, kCalm, message, patience());
        require(t.recv(from, kCalm, patience()).size() == message.size(), "another size");
      }
    const std::int64_t more = peak_bytes() - before;
    if (more > 36'000'000) throw std::runtime_error(fmt::format("{} bytes more", more));
    meet_all(t, kReady);
  });
  for (Rank r = 0; r < 8; ++r) EXPECT_EQ(ranks.wait(r), 0);
}
#endif

TEST(GlooProcesses, AKilledRankIsNamedAndTheOthersGoOn) {
  for (int round = 0; round < rounds(); ++round) {
    RankProcesses ranks(3, [](Transport& t) {
      if (t.rank() == kVictim) {
        std::thread other([&] { make_noise(t, 0); });
        make_noise(t, 1);
      }
      require(accused_by<PeerLost>([&] { make_noise(t, kVictim); }) == kVictim,
              "the noise ended otherwise");
      const auto start = Clock::now();
      require(accused_by<PeerLost>([&] { t.recv(kVictim, kNever, patience()); }) == kVictim,
              "recv does not name the lost rank");
      require(accused_by<PeerLost>([&] { t.send(kVictim, kNever, {}, patience()); }) == kVictim,
              "send does not name the lost rank");
      require(Clock::now() - start < milliseconds(2000), "it took long");
      talk(t, 1 - t.rank());
    });
    ranks.wait_until_ready();
    const auto after = word_at(key_of(7), static_cast<std::uint64_t>(round)) % 200;
    std::this_thread::sleep_for(milliseconds(after));
    ranks.signal(kVictim, SIGKILL);
    EXPECT_EQ(ranks.wait(0), 0) << round;
    EXPECT_EQ(ranks.wait(1), 0) << round;
  }
}

TEST(GlooProcesses, ARankKilledWhileTheyConnectIsNamedToo) {
  for (int round = 0; round < rounds(); ++round) {
    RankProcesses ranks(
        3,
        [](Transport& t) {  // it may be over before, or just here
          accused_by<PeerLost>([&] { t.recv(kVictim, kNever, patience()); });
        },
        milliseconds(400));
    std::this_thread::sleep_for(
        milliseconds(word_at(key_of(8), static_cast<std::uint64_t>(round)) % 60));
    ranks.signal(kVictim, SIGKILL);
    for (const Rank r : {0, 1}) {  // no rank may crash, and none end without a name
      const int end = ranks.wait(r);
      EXPECT_TRUE(end == 0 || end >= kAccuses) << end << " at rank " << r << ", " << round;
    }
  }
}

// What the tests here stand on: one that cannot connect is no reason to wait for ever. The missing
// rank is never started, since one that is killed at once may have connected before.
TEST(RankProcesses, AreNotReadyWhenOneIsMissing) {
  RankProcesses ranks(
      2, [](Transport&) {}, milliseconds(300), 1);
  EXPECT_FALSE(ranks.are_ready());
}

// At once, as a rule. Whoever has just received half of a message is not woken by gloo when its
// sender dies, about once in two hundred times on a busy machine: then the deadline ends the sum.
TEST(GlooProcesses, ASumEndsWhenARankIsKilled) {
  RankProcesses ranks(4, [](Transport& t) {
    const auto start = Clock::now();
    const int accused = accused_by<PeerLost>([&] {
      for (std::vector<float> values(1 << 18);;) t.sum(values, in(milliseconds(6000)));
    });
    require(Clock::now() - start < milliseconds(10'000), "it took long");
    // Others leave as soon as they have noticed, so that any of them may be the first one missed.
    require(accused != t.rank() && accused >= 0, "the sum accuses nobody");
  });
  ranks.wait_until_ready();
  std::this_thread::sleep_for(milliseconds(200));
  ranks.signal(kVictim, SIGKILL);
  for (const Rank r : {0, 1, 3}) EXPECT_EQ(ranks.wait(r), 0) << r;
}

// More than slots and sockets hold, so that the sender has to wait for somebody who takes it.
const Bytes& flood() {
  static const Bytes bytes(64 << 20, std::byte{3});
  return bytes;
}

TEST(GlooProcesses, AStoppedRankIsLateAndNothingWorse) {
  RankProcesses ranks(3, [](Transport& t) {
    meet_and_lose_the_victim(t, SIGSTOP);
    if (t.rank() == kVictim) {
      for (Rank r = 0; r < 2; ++r) {
        t.send(r, kCalm, Bytes(1000), patience());
        // What was given up in the middle never arrives; what came after it does.
        require(t.recv(r, kCalm, patience()).size() == 77, "another message than the last");
        require(!t.try_recv(r, kNoise), "half a message arrived");
      }
      return;
    }
    std::this_thread::sleep_for(milliseconds(100));
    require(accused_by<Timeout>([&] { t.recv(kVictim, kCalm, in(milliseconds(50))); }) == kVictim,
            "recv did not time out");
    require(accused_by<Timeout>([&] { t.send(kVictim, kNoise, flood(), in(milliseconds(300))); }) ==
                kVictim,
            "send did not time out");
    talk(t, 1 - t.rank());
    require(t.recv(kVictim, kCalm, patience()).size() == 1000, "the late message");
    t.send(kVictim, kCalm, Bytes(77), patience());
    require(accused_by<PeerLost>([&] { t.recv(kVictim, kNever, patience()); }) == kVictim,
            "it did not end");
  });
  ranks.wait_until_ready();
  std::this_thread::sleep_for(milliseconds(900));
  ranks.signal(kVictim, SIGCONT);
  for (Rank r = 0; r < 3; ++r) EXPECT_EQ(ranks.wait(r), 0) << r;
}

TEST(GlooProcesses, WhoSendsToAStoppedRankIsLetGoWhenItIsKilled) {
  RankProcesses ranks(3, [](Transport& t) {
    meet_and_lose_the_victim(t, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(100));
    // Half of a fragment is with the kernel by then, which gloo does not wake.
    require(accused_by<PeerLost>([&] { t.send(kVictim, kNoise, flood(), patience()); }) == kVictim,
            "send did not end with the rank");
    talk(t, 1 - t.rank());
  });
  ranks.wait_until_ready();
  std::this_thread::sleep_for(milliseconds(600));
  ranks.signal(kVictim, SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
}

TEST(GlooProcesses, TheEndDoesNotWaitForAStoppedRank) {
  RankProcesses ranks(3, [](Transport& t) {
    meet_and_lose_the_victim(t, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(100));
    accused_by<Timeout>([&] { t.send(kVictim, kNoise, flood(), in(milliseconds(50))); });
  });
  const auto start = Clock::now();
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
  EXPECT_LT(Clock::now() - start, milliseconds(8000));
}

TEST(GlooProcesses, ACleanEndAndACrashReadDifferently) {
  RankProcesses ranks(3, [](Transport& t) {
    meet_and_lose_the_victim(t, SIGKILL);
    if (t.rank() == 1) return;
    const auto reason = [&](Rank peer) -> std::string {
      try {
        t.recv(peer, kNever, patience());
      } catch (const PeerLost& lost) {
        return lost.what();
      }
      return "";
    };
    const bool is_clean = reason(1).find("it closed its transport") != std::string::npos;
    const bool is_crash = reason(kVictim).find("it closed its transport") == std::string::npos;
    require(is_clean && is_crash, (reason(1) + " / " + reason(kVictim)).c_str());
  });
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
}

TEST(GlooProcesses, NobodySpinsWhileNothingHappens) {
  RankProcesses ranks(4, [](Transport& t) {
    const auto processor_seconds = [] {
      rusage used{};
      ::getrusage(RUSAGE_SELF, &used);
      return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    };
    meet_all(t, kReady);
    const double before = processor_seconds();
    accused_by<Timeout>([&] { t.recv((t.rank() + 1) % 4, kNever, in(milliseconds(500))); });
    const double used = processor_seconds() - before;
    require(used < 0.1, ("it used the processor for s " + std::to_string(used)).c_str());
    meet_all(t, kReady);
  });
  for (Rank r = 0; r < 4; ++r) EXPECT_EQ(ranks.wait(r), 0) << r;
}

}  // namespace
}  // namespace laconic
