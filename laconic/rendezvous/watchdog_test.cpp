#include "laconic/rendezvous/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace laconic {
namespace {

using std::chrono::milliseconds;

bool soon(const std::function<bool()>& condition) {
  for (const Deadline end = in(milliseconds(5000)); std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

TEST(Watchdog, RingsOnceAndNotBeforeItIsDue) {
  Watchdog watchdog;
  std::atomic<int> rings = 0;
  std::atomic<Deadline> rang{Deadline{}};
  const auto bell = watchdog.add([&] {
    rang = std::chrono::steady_clock::now();
    ++rings;
  });
  const Deadline due = in(milliseconds(30));
  watchdog.set(bell, due);
  ASSERT_TRUE(soon([&] { return rings > 0; }));
  EXPECT_GE(rang.load(), due);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(rings, 1);
}

TEST(Watchdog, AnEarlierBellIsHeardWhileItSleepsForALaterOne) {
  Watchdog watchdog;
  std::atomic<int> early = 0, late = 0;
  const auto second = watchdog.add([&] { ++late; });
  const auto first = watchdog.add([&] { ++early; });
  watchdog.set(second, in(milliseconds(60'000)));
  std::this_thread::sleep_for(milliseconds(10));
  watchdog.set(first, in(milliseconds(10)));
  EXPECT_TRUE(soon([&] { return early == 1; }));
  EXPECT_EQ(late, 0);
}

TEST(Watchdog, AClearedBellStaysSilentAndCanBeSetAgain) {
  Watchdog watchdog;
  std::atomic<int> rings = 0;
  const auto bell = watchdog.add([&] { ++rings; });
  watchdog.set(bell, in(milliseconds(20)));
  watchdog.clear(bell);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(rings, 0);
  watchdog.set(bell, in(milliseconds(-5)));
  EXPECT_TRUE(soon([&] { return rings == 1; }));
}

TEST(Watchdog, ARemovedBellDoesNotRing) {
  Watchdog watchdog;
  for (int i = 0; i < 200; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    const auto bell = watchdog.add([&] { ++*alive; });
    watchdog.set(bell, in(milliseconds(i % 2)));
    if (i % 3 == 0) std::this_thread::yield();
    watchdog.remove(bell);
    alive.reset();  // a ring after this would be seen by a sanitizer
  }
}

}  // namespace
}  // namespace laconic
