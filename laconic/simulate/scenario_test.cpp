#include "laconic/simulate/scenario.hpp"

#include <gtest/gtest.h>

#include "laconic/simulate/test_subject.hpp"

namespace laconic {
namespace {

TEST(Scenario, AStragglerHoldsUpAllAndJitterIsDrawnBySeed) {
  const Subject subject = various(2e6, 1e-4).front();
  const auto seconds = [&](const Scenario& scenario) {
    return simulate({.config = subject.config,
                     .spec = subject.spec,
                     .grid = subject.grid,
                     .decisions = subject.decisions,
                     .hosts = subject.hosts,
                     .folding = Folding::never},
                    [&](RunProgram& program, const RankClasses&) { apply(scenario, program); })
        .step_seconds;
  };
  const double usual = seconds({});
  EXPECT_EQ(usual, subject.seconds());
  EXPECT_GT(seconds({.stragglers = {{2, 3}}}), usual * 1.05);
  EXPECT_GT(seconds({.jitter = 0.2}), usual);
  EXPECT_EQ(seconds({.jitter = 0.2, .seed = 5}), seconds({.jitter = 0.2, .seed = 5}));
  EXPECT_NE(seconds({.jitter = 0.2, .seed = 5}), seconds({.jitter = 0.2, .seed = 6}));
}

TEST(Scenario, WordsAreReadStrictly) {
  EXPECT_EQ(parse_straggler("3=1.5"), (Straggler{3, 1.5}));
  EXPECT_EQ(parse_lost_rank("2@120"), (LostRank{2, 120}));
  for (const char* text : {"", "3", "3=", "=2", "3=x", "3=1 ", "a=1"})
    EXPECT_FALSE(parse_straggler(text)) << text;
  for (const char* text : {"", "2@", "@5", "2@x", "2=5"})
    EXPECT_FALSE(parse_lost_rank(text)) << text;
  const Scenario scenario = scenario_of({.stragglers = {"1=2", "3=4"}, .lose = "2@7"});
  EXPECT_EQ(scenario.stragglers, (std::vector<Straggler>{{1, 2}, {3, 4}}));
  EXPECT_EQ(scenario.lost, (LostRank{2, 7}));
}

TEST(Scenario, AllThatIsWrongIsSaidAtOnce) {
  EXPECT_TRUE(check({.jitter = 0.1, .stragglers = {"3=2"}, .lose = "0@5"}, 4).empty());
  const std::string text =
      to_text(check({.jitter = -1, .stragglers = {"4=0", "x", "1=1e9"}, .lose = "7@x"}, 4));
  for (const char* part : {"-1 is not in 0 to 10", "rank 4 of 4", "a factor of 0", "'x' is not",
                           "a factor of 1000000000", "'7@x' is not RANK@STEP"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const std::string lost = to_text(check({.lose = "7@-2"}, 4));
  for (const char* part : {"rank 7 of 4", "step -2 is below 0"})
    EXPECT_NE(lost.find(part), std::string::npos) << part << " in " << lost;
}

TEST(Scenario, ALossCostsTheStepsSinceTheLastCheckpoint) {
  EXPECT_EQ(cost_of({2, 125}, 50, 2).repeated_steps, 25);
  EXPECT_EQ(cost_of({2, 125}, 50, 2).seconds, 50);
  EXPECT_EQ(cost_of({2, 125}, 0, 2).repeated_steps, 125);
}

}  // namespace
}  // namespace laconic
