#include "laconic/engine/progress_deadline.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace laconic {
namespace {

using std::chrono::milliseconds;

void pause(milliseconds time) {
  std::this_thread::sleep_for(time);
}

TEST(ProgressDeadline, PassesWhenNothingIsCounted) {
  ProgressDeadline deadline(milliseconds(20), 7);
  EXPECT_FALSE(deadline.has_passed(7));
  pause(milliseconds(25));
  EXPECT_TRUE(deadline.has_passed(7));
  EXPECT_TRUE(deadline.has_passed(7));
}

TEST(ProgressDeadline, BeginsAnewWithEveryChangeOfTheCount) {
  ProgressDeadline deadline(milliseconds(20), 0);
  const Deadline first = deadline.until();
  for (std::uint64_t count = 1; count <= 3; ++count) {
    pause(milliseconds(25));  // too late, but something has moved
    EXPECT_FALSE(deadline.has_passed(count)) << count;
  }
  EXPECT_GE(deadline.until(), first + milliseconds(75));
  EXPECT_EQ(deadline.until(3), deadline.until());
  pause(milliseconds(25));
  EXPECT_TRUE(deadline.has_passed(3));
}

TEST(ProgressDeadline, ACountThatFallsHasChangedToo) {
  ProgressDeadline deadline(milliseconds(0), 5);
  EXPECT_TRUE(deadline.has_passed(5));
  ProgressDeadline longer(milliseconds(10'000), 5);
  const Deadline before = longer.until();
  pause(milliseconds(2));
  EXPECT_GT(longer.until(4), before);
}

}  // namespace
}  // namespace laconic
