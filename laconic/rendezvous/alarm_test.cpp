#include "laconic/rendezvous/alarm.hpp"

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

TEST(Alarm, RingsOnceAndNotBeforeItIsDue) {
  Alarm alarm;
  std::atomic<int> rings = 0;
  std::atomic<Deadline> rang{Deadline{}};
  const auto bell = alarm.add([&] {
    rang = std::chrono::steady_clock::now();
    ++rings;
  });
  const Deadline due = in(milliseconds(30));
  alarm.set(bell, due);
  ASSERT_TRUE(soon([&] { return rings > 0; }));
  EXPECT_GE(rang.load(), due);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(rings, 1);
}

TEST(Alarm, AnEarlierBellIsHeardWhileItSleepsForALaterOne) {
  Alarm alarm;
  std::atomic<int> early = 0, late = 0;
  const auto second = alarm.add([&] { ++late; });
  const auto first = alarm.add([&] { ++early; });
  alarm.set(second, in(milliseconds(60'000)));
  std::this_thread::sleep_for(milliseconds(10));
  alarm.set(first, in(milliseconds(10)));
  EXPECT_TRUE(soon([&] { return early == 1; }));
  EXPECT_EQ(late, 0);
}

TEST(Alarm, AClearedBellStaysSilentAndCanBeSetAgain) {
  Alarm alarm;
  std::atomic<int> rings = 0;
  const auto bell = alarm.add([&] { ++rings; });
  alarm.set(bell, in(milliseconds(20)));
  alarm.clear(bell);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(rings, 0);
  alarm.set(bell, in(milliseconds(-5)));
  EXPECT_TRUE(soon([&] { return rings == 1; }));
}

TEST(Alarm, ARemovedBellDoesNotRing) {
  Alarm alarm;
  for (int i = 0; i < 200; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    const auto bell = alarm.add([&] { ++*alive; });
    alarm.set(bell, in(milliseconds(i % 2)));
    if (i % 3 == 0) std::this_thread::yield();
    alarm.remove(bell);
    alive.reset();  // a ring after this would be seen by a sanitizer
  }
}

}  // namespace
}  // namespace laconic
