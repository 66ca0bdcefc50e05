#include "laconic/schedule/choice.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

ScheduleCandidate candidate(double seconds, double held, bool fits = true) {
  return {.seconds = seconds, .held = held, .fits = fits};
}

TEST(ScheduleChoice, TheFastestIsTakenAndOfEquallyFastOnesTheSmallest) {
  EXPECT_EQ(choose({candidate(3, 1), candidate(2, 9), candidate(2.5, 1)}), 1u);
  EXPECT_EQ(choose({candidate(2, 9), candidate(2.015, 4), candidate(2.03, 1)}), 1u)
      << "1 % is what an estimate cannot tell, 1.5 % is slower";
  EXPECT_EQ(choose({candidate(2, 4), candidate(2, 4)}), 0u) << "the first of equals";
}

TEST(ScheduleChoice, WhatDoesNotFitIsNotTakenHoweverFast) {
  EXPECT_EQ(choose({candidate(1, 9, false), candidate(2, 4), candidate(3, 1)}), 1u);
  EXPECT_EQ(choose({candidate(1, 9, false)}), std::nullopt);
  EXPECT_EQ(choose({}), std::nullopt);
}

TEST(ScheduleChoice, SizesAreDivisorsDownToAnEighth) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(microbatch_sizes(32, 4), (Sizes{4, 2, 1}));
  EXPECT_EQ(microbatch_sizes(12, 5), (Sizes{4, 3, 2, 1}));
  EXPECT_EQ(microbatch_sizes(64, 64), (Sizes{64, 32, 16, 8}));
  EXPECT_EQ(microbatch_sizes(7, 6), (Sizes{1}));
  EXPECT_EQ(microbatch_sizes(3, 9), (Sizes{3, 1})) << "never more than there are";
}

TEST(ScheduleChoice, RanksThatShareProcessorsCannotComputeAtOnce) {
  const MachineWork work{.longest = 2.5, .all = 8};
  EXPECT_EQ(shared_seconds(3, work, 0), 3) << "each has its own";
  EXPECT_EQ(shared_seconds(3, work, 2), 4.5);
  EXPECT_EQ(shared_seconds(3, work, 4), 3);
}

TEST(ScheduleChoice, ChunksSayWhichKindsThereAre) {
  EXPECT_EQ(kinds_for_chunks(2), (std::vector{ScheduleKind::interleaved}));
  EXPECT_EQ(kinds_for_chunks(1), (std::vector{ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                              ScheduleKind::zero_bubble}));
}

}  // namespace
}  // namespace laconic
