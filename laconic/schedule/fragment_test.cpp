#include "laconic/schedule/fragment.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace laconic {
namespace {

std::string lanes_of(const FragmentSpec& spec) {
  std::string text;
  for (std::int64_t b = 0; b < spec.blocks; ++b)
    text += static_cast<char>('0' + fragment_of(spec, b));
  return text;
}

// Streaming DiLoCo's figure: fragment p has the layers p, p + P, p + 2 P.
TEST(Fragments, AreStridedOrSequential) {
  EXPECT_EQ(lanes_of({.blocks = 14, .layers = 3, .steps = 30}), "40123012301234");
  EXPECT_EQ(lanes_of({.blocks = 14, .layers = 3, .order = FragmentOrder::sequential, .steps = 30}),
            "40001112223334");
  EXPECT_EQ(lanes_of({.blocks = 6, .layers = 0, .steps = 1}), "000000");
  EXPECT_EQ(lanes_of({.blocks = 2, .layers = 3, .steps = 1}), "00");
}

// L6: whatever the model, every block is in one fragment, none is empty, and every fragment leaves
// once a round, in a step of its own, and comes so many steps later.
TEST(Fragments, CoverEveryBlockOnceAndLeaveOnceARound) {
  int accepted = 0;
  for (std::int64_t blocks = 1; blocks <= 14; ++blocks)
    for (std::int64_t layers = 0; layers <= 5; ++layers)
      for (const FragmentOrder order : {FragmentOrder::strided, FragmentOrder::sequential})
        for (std::int64_t steps = 1; steps <= 9; ++steps)
          for (std::int64_t overlap = 0; overlap <= 9; ++overlap) {
            const FragmentSpec spec{blocks, layers, order, steps, overlap};
            SCOPED_TRACE(to_text(check(spec)));
            const bool is_good = overlap < steps && fragment_count(spec) <= steps;
            EXPECT_EQ(check(spec).empty(), is_good);
            if (!is_good) continue;
            ++accepted;
            std::set<std::int64_t> met;
            for (std::int64_t b = 0; b < blocks; ++b) met.insert(fragment_of(spec, b));
            EXPECT_EQ(static_cast<std::int64_t>(met.size()), fragment_count(spec));
            EXPECT_EQ(*met.begin(), 0);
            EXPECT_EQ(*met.rbegin(), fragment_count(spec) - 1);
            std::map<std::int64_t, int> leaving;
            for (std::int64_t s = 1; s <= 2 * steps; ++s) {
              int now = 0;
              for (std::int64_t f = 0; f < fragment_count(spec); ++f) {
                now += leaves_after(spec, f, s) ? 1 : 0;
                leaving[f] += leaves_after(spec, f, s) ? 1 : 0;
                EXPECT_EQ(comes_after(spec, f, s + overlap), leaves_after(spec, f, s));
                EXPECT_TRUE(s > overlap || !comes_after(spec, f, s));
              }
              EXPECT_LE(now, 1);
            }
            for (const auto& [f, times] : leaving) EXPECT_EQ(times, 2) << f;
            EXPECT_TRUE(leaves_after(spec, 0, steps));
          }
  EXPECT_GT(accepted, 1000);
}

TEST(Fragments, ReadLikeATable) {
  EXPECT_EQ(to_text({.blocks = 6, .layers = 2, .steps = 6, .overlap = 1}),
            "fragment 0: blocks 1, 3\n"
            "fragment 1: blocks 2, 4\n"
            "fragment 2: blocks 0, 5\n"
            "after step  leaves  comes\n"
            "         7              0\n"
            "         8       1       \n"
            "         9              1\n"
            "        10       2       \n"
            "        11              2\n"
            "        12       0       \n"
            "        13              0\n");
}

TEST(Fragments, AllThatIsWrongIsToldAtOnce) {
  EXPECT_EQ(to_text(check(FragmentSpec{.blocks = 14, .layers = 3, .steps = 4, .overlap = 4})),
            "overlap: 4 steps of a round of 4: a fragment must come before it leaves again\n"
            "layers: 12 layers in fragments of 3, and embedding and head, are 5 fragments for 4 "
            "steps: every fragment needs a step of its own");
  EXPECT_EQ(check(FragmentSpec{.blocks = 0, .layers = -1, .steps = 0, .overlap = -1}).size(), 4U);
}

}  // namespace
}  // namespace laconic
