#include "laconic/simulate/stretch.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(Stretches, OfEqualStepsOneStandsForAll) {
  EXPECT_EQ(stretches_of({}, false).all.size(), 1U);
  EXPECT_EQ(stretches_of({}, false).counted(), 1);
  EXPECT_EQ(stretches_of({}, true).all.front().steps.size(), 3U);
}

// What a long run does after warm-up, step by step, and what stretches make of it.
TEST(Stretches, CountWhatTheStepsOfARunDo) {
  for (const LocalMethod method :
       {LocalMethod::diloco, LocalMethod::linear, LocalMethod::sparse_loco})
    for (const std::int64_t steps : {1, 2, 5, 100})
      for (const std::int64_t overlap : {0, 1, 2, 5})
        for (const auto& [refresh, spread] :
             {std::pair<std::int64_t, bool>{1, false}, {4, false}, {1, true}, {4, true}}) {
          const bool is_linear = method == LocalMethod::linear;
          if (overlap > steps || ((overlap > 0 || spread) && !is_linear)) continue;
          LocalSection local;
          local.spread = spread;
          local.steps = steps;
          local.method = method;
          local.overlap = overlap;
          local.warmup = 0;
          local.refresh = refresh;
          // Rounds 17 to 16 + 4 * refresh are past the powers of two.
          double together = 0, ends = 0;
          const std::int64_t rounds = 4 * refresh, first = 16 * refresh * steps;
          for (std::int64_t s = first; s < first + rounds * steps; ++s) {
            const LocalStep one = local_step(local, s);
            together += is_linear && one.is_together ? 1 : 0;
            ends += one.ends_round ? 1 : 0;
          }
          double counted_together = 0, counted_ends = 0;
          const Stretches stretches = stretches_of(local, false);
          for (const Stretch& stretch : stretches.all)
            for (const LocalStep& one : stretch.steps) {
              counted_together += one.is_together ? stretch.times : 0;
              counted_ends += one.ends_round ? stretch.times : 0;
            }
          const double share = stretches.counted() / static_cast<double>(rounds * steps);
          EXPECT_DOUBLE_EQ(counted_together, share * together) << steps << " " << overlap;
          EXPECT_DOUBLE_EQ(counted_ends, share * ends) << steps << " " << overlap;
        }
}

}  // namespace
}  // namespace laconic
