#include "laconic/rendezvous/gloo_peer.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace laconic {
namespace {

TEST(StagingRing, HoldsTwoOfTheLargestFragmentsAndThenWaits) {
  StagingRing ring;
  for (int turn = 0; turn < 5; ++turn) {
    const auto place = ring.place_for(kFragmentBytes);
    ASSERT_TRUE(place);
    ring.push(*place, kFragmentBytes);
    if (ring.count() == 1) continue;
    EXPECT_FALSE(ring.place_for(1));
    ring.pop();
  }
}

// Against a list of what is in use: nothing overlaps, nothing leaves the ring, and whatever fits
// when the ring is empty fits again when all have left.
TEST(StagingRing, NeverPutsAFragmentOnAnother) {
  std::mt19937 random(5);
  StagingRing ring;
  std::deque<std::pair<std::size_t, std::size_t>> used;
  int placed = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool is_small = random() % 2 == 0;
    const std::size_t bytes = 1 + random() % (is_small ? 100 : kFragmentBytes);
    if (const auto place = ring.place_for(bytes)) {
      ASSERT_LE(*place + bytes, kStagedBytes);
      for (const auto& [begin, end] : used) ASSERT_TRUE(*place >= end || *place + bytes <= begin);
      ring.push(*place, bytes);
      used.emplace_back(*place, *place + bytes);
      ++placed;
    } else {
      ASSERT_FALSE(used.empty());
      ++refused;
    }
    while (!used.empty() && random() % 3 == 0) {
      ring.pop();
      used.pop_front();
    }
    ASSERT_EQ(ring.count(), used.size());
  }
  EXPECT_GT(placed, 5000);
  EXPECT_GT(refused, 500);
}

TEST(StagingRing, AGoodbyeTakesNoRoom) {
  StagingRing ring;
  ring.push(ring.end(), 0);
  ring.push(*ring.place_for(kFragmentBytes), kFragmentBytes);
  ring.push(ring.end(), 0);
  EXPECT_TRUE(ring.place_for(kFragmentBytes));
  EXPECT_EQ(ring.count(), 3u);
}

}  // namespace
}  // namespace laconic
