#include "laconic/engine/window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>
#include <vector>

namespace laconic {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Piece = Window::Piece;
using Time = Window::Time;

constexpr std::uint64_t kBytes = 50'000;
const Time kStart = Time{} + std::chrono::hours(1);

// Pieces under way at `key` until one is refused, or `most`.
std::vector<Piece> fill(Window& window, Window::Key key, Time now, std::size_t most = 100) {
  std::vector<Piece> pieces;
  while (pieces.size() < most) {
    auto piece = window.begin(key, kBytes, now);
    if (!piece) break;
    pieces.push_back(std::move(*piece));
  }
  return pieces;
}

// As often as told: fills it and ends all after `took`. Returns the time afterwards.
Time repeat(Window& window, int times, milliseconds took, Time now) {
  for (int i = 0; i < times; ++i) {
    auto pieces = fill(window, 1, now);
    now += took;
    for (Piece& piece : pieces) piece.end(now);
  }
  return now;
}

// The first piece is alone, and this one was late.
void end_first(Window& window) {
  fill(window, 1, kStart - milliseconds(100)).front().end(kStart);
}

TEST(Window, LetsOneBeginAtFirstAndThenAlwaysTwo) {
  Window window;
  EXPECT_EQ(fill(window, 1, kStart - milliseconds(100)).size(), 1u);
  end_first(window);
  EXPECT_EQ(fill(window, 1, kStart).size(), 2u);
}

TEST(Window, OpensWhilePiecesAreFast) {
  Window window;
  repeat(window, 8, milliseconds(1), kStart);
  EXPECT_EQ(fill(window, 1, kStart + milliseconds(9)).size(), 100u);
}

TEST(Window, ClosesWhilePiecesAreLate) {
  Window window;
  const Time now = repeat(window, 5, milliseconds(1), kStart);
  ASSERT_GT(window.bytes(), 4 * kBytes);
  const Time later = repeat(window, 20, milliseconds(200), now);
  EXPECT_EQ(window.bytes(), 0u);
  EXPECT_EQ(fill(window, 1, later).size(), 2u);
}

TEST(Window, IsNotWidenedByThoseWhoDoNotFillIt) {
  Window window;
  Time now = repeat(window, 5, milliseconds(1), kStart);
  const std::uint64_t width = window.bytes();
  for (int i = 0; i < 100; ++i) {
    auto piece = window.begin(1, kBytes / 100, now);
    now += milliseconds(1);
    piece->end(now);
  }
  EXPECT_EQ(window.bytes(), width);
}

TEST(Window, TheUrgentDoNotWaitForTheRest) {
  Window window;
  end_first(window);
  const auto rest = fill(window, 9, kStart);
  ASSERT_EQ(rest.size(), 2u);
  const auto urgent = fill(window, 3, kStart);
  EXPECT_EQ(urgent.size(), 2u);
  EXPECT_FALSE(window.begin(5, kBytes, kStart)) << "two that are more urgent are under way";
}

TEST(Window, LetsOneMoreBeginWhenNothingHasMovedForLong) {
  Window window;
  const auto stuck = fill(window, 1, kStart);
  EXPECT_FALSE(window.begin(2, kBytes, kStart + Window::kPatience - milliseconds(1)));
  const Time later = kStart + Window::kPatience;
  const auto one = window.begin(2, kBytes, later);
  EXPECT_TRUE(one);
  EXPECT_FALSE(window.begin(2, kBytes, later));
}

TEST(Window, DoesNotTakeASlowLinkForOneThatIsStuck) {
  Window window;
  auto first = fill(window, 1, kStart);
  Time now = kStart + milliseconds(600);
  first.front().end(now);
  const auto two = fill(window, 1, now);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_FALSE(window.begin(1, kBytes, now + milliseconds(600)));
  EXPECT_TRUE(window.begin(1, kBytes, now + milliseconds(1200)));
}

TEST(Window, TellsWhoWasRefusedThatThereIsRoom) {
  int told = 0;
  Window window([&] { ++told; });
  end_first(window);
  told = 0;
  auto pieces = fill(window, 1, kStart, 2);
  pieces[0].end(kStart);
  EXPECT_EQ(told, 0) << "nobody was refused";
  auto again = fill(window, 1, kStart);
  pieces[1].end(kStart + milliseconds(1));
  EXPECT_EQ(told, 1);
}

TEST(Window, APieceThatFailsLeavesRoomAndTellsNothing) {
  Window window;
  repeat(window, 5, milliseconds(1), kStart);
  const std::uint64_t width = window.bytes();
  {
    const auto pieces = fill(window, 1, kStart + milliseconds(5));
    ASSERT_GT(pieces.size(), 2u);
  }
  EXPECT_EQ(window.bytes(), width);
  EXPECT_GT(fill(window, 1, kStart + milliseconds(6)).size(), 2u);
}

// --- on a link of so many bits a second, whose way takes so long; one piece after the other

struct LinkCase {
  double bits_per_second;
  milliseconds way;
};

struct LinkOutcome {
  double share = 0;  // of what the link carries
  double longest_queue_s = 0;
};

// Measures in the second half, when the window has its width.
LinkOutcome use_link(Window& window, const LinkCase& link, Time from, Time to) {
  const auto service = std::chrono::duration_cast<Time::duration>(
      std::chrono::duration<double>(8 * kBytes / link.bits_per_second));
  const Time middle = from + (to - from) / 2;
  std::deque<std::pair<Time, Piece>> under_way;  // with the time of its end
  Time now = from, free = from;
  LinkOutcome outcome;
  std::uint64_t carried = 0;
  while (now < to) {
    while (auto piece = window.begin(1, kBytes, now)) {
      free = std::max(free, now) + service;
      under_way.emplace_back(free + link.way, std::move(*piece));
    }
    const std::chrono::duration<double> queue = free - now;
    if (now > middle) outcome.longest_queue_s = std::max(outcome.longest_queue_s, queue.count());
    now = under_way.front().first;
    under_way.front().second.end(now);
    under_way.pop_front();
    if (now > middle) carried += kBytes;
  }
  outcome.share = 8 * static_cast<double>(carried) / link.bits_per_second /
                  std::chrono::duration<double>(now - middle).count();
  return outcome;
}

class WindowOnLink : public testing::TestWithParam<LinkCase> {};

TEST_P(WindowOnLink, KeepsItBusyWithAShortQueue) {
  const LinkCase link = GetParam();
  Window window;
  const LinkOutcome outcome = use_link(window, link, kStart, kStart + std::chrono::seconds(30));
  EXPECT_GT(outcome.share, 0.93);
  // Twice what two pieces take, or what a long way needs, is the most it lets wait.
  const double two = 16 * kBytes / link.bits_per_second;
  const double way = std::chrono::duration<double>(link.way).count();
  EXPECT_LT(outcome.longest_queue_s, 2 * std::max({0.03, two, way}));
}

INSTANTIATE_TEST_SUITE_P(
    Rates, WindowOnLink,
    testing::Values(LinkCase{20e6, milliseconds(1)}, LinkCase{100e6, milliseconds(1)},
                    LinkCase{1e9, milliseconds(1)}, LinkCase{100e6, milliseconds(40)},
                    LinkCase{100e6, milliseconds(200)}, LinkCase{1e9, milliseconds(100)}));

// A way that becomes longer is found out: the least time is forgotten after a while.
TEST(Window, LearnsThatTheWayHasBecomeLonger) {
  Window window;
  const Time middle = kStart + std::chrono::seconds(30);
  use_link(window, {100e6, milliseconds(1)}, kStart, middle);
  use_link(window, {100e6, milliseconds(150)}, middle, middle + std::chrono::seconds(30));
  const Time last = middle + std::chrono::seconds(30);
  const auto outcome =
      use_link(window, {100e6, milliseconds(150)}, last, last + std::chrono::seconds(60));
  EXPECT_GT(outcome.share, 0.9);
}

}  // namespace
}  // namespace laconic
