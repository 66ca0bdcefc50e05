// The pages about pipelines, "bandwidth" and "optimus-cc" with its losses, and figures over rates.
#include <gtest/gtest.h>

#include <limits>

#include "laconic/study/report_figure.hpp"
#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;

TEST(StudyPages, CellsOfTheSweepAreExact) {
  const Outcomes outcomes = {
      invented({.round = 1, .seconds = 4, .exposed_seconds = 1}),
      invented({.round = 2, .seconds = 8, .exposed_seconds = 2}),
      invented({.method = "fp16", .round = 1, .seconds = 2, .wire_bytes = 12e6}),
      invented({.method = "fp16", .rate = "1gbit", .seconds = 1}),
  };
  const std::string page = bandwidth_page(outcomes, {});
  // 32 samples in 4 and in 8 seconds.
  EXPECT_TRUE(contains(page,
                       "| fp32 | not measured | 6.00 (4.00–8.00, n 2) |\n"
                       "| fp16 | 32.0 (n 1) | 16.0 (n 1) |\n"))
      << page;
  EXPECT_TRUE(contains(page, "| fp16 | fp32 not measured | 3.00x (2.00–4.00, n 1) |\n")) << page;
  EXPECT_TRUE(contains(page, "| fp32 | not measured | 25 (n 2) |\n")) << page;
  EXPECT_TRUE(contains(page, "| fp16 | 24.0 (n 1) | 12.0 (n 1) |\n")) << page;
  EXPECT_FALSE(contains(page, "first epoch |"));
}

TEST(StudyPages, MethodsWithMemoryHaveARowForTheFirstEpoch) {
  // 64 samples of 32 a step: step 2 is of the first epoch, steps from 3 on of later ones.
  Outcome outcome = invented({.method = "ac-sgd", .steps = 4, .preset = "ac-sgd"});
  outcome.steps[1].seconds = 4;
  for (std::size_t i = 2; i < outcome.steps.size(); ++i) outcome.steps[i].seconds = 2;
  const std::string page = bandwidth_page({outcome}, {});
  EXPECT_TRUE(contains(page,
                       "| ac-sgd | 16.0 (n 1) |\n"
                       "| ac-sgd, first epoch | 8.00 (n 1) |\n"))
      << page;
  EXPECT_TRUE(contains(page, "fp32 was not measured, so there is nothing to compare with."));
}

TEST(StudyPages, UnshapedStandsBeyondTheFastestRate) {
  EXPECT_EQ(rate_ticks({"none", "unshaped", "10gbit", "50mbit"}),
            (std::vector<Tick>{{100000, "unshaped"}, {10000, "10gbit"}, {50, "50mbit"}}));
}

TEST(StudyPages, AFigureOverRatesHasCurvesOfWhatHasNumbers) {
  const Outcomes outcomes = {invented({.seconds = 2}), invented({.rate = "unshaped"}),
                             invented({.method = "fp16"})};
  const std::vector<Case> cases = cases_of(outcomes, "bandwidth");
  const Figure figure = figure_over_rates(cases, {"fp32", "fp16", "rotated"}, [](const Case& one) {
    return one.method == "fp16" ? Spread{} : seconds_of(one);
  });
  EXPECT_TRUE(figure.log_x);
  EXPECT_EQ(figure.ticks, rate_ticks({"unshaped", "100mbit"}));
  EXPECT_EQ(figure.curves, (std::vector<Curve>{{"fp32", {{1000, 1, 1, 1}, {100, 2, 2, 2}}}}));
}

TEST(StudyPages, BytesOfAStepAreThoseOfTraining) {
  Outcome probed = invented({.method = "fp16", .wire_bytes = 12e6});
  probed.traffic.push_back({"preflight", 1, 1e9, 1e9, 0, 0, 0});
  probed.traffic.push_back({"control", 1, 1e9, 1e9, 0, 0, 0});
  Outcome bypass = invented({.method = "ac-sgd, bypass auto", .preset = "ac-sgd"});
  bypass.trial.set["steering.bypass"] = "auto";
  const Figure figure = bytes_figure({invented({}), probed, bypass});
  EXPECT_TRUE(contains(figure.title, "mean over the run, first epoch included")) << figure.title;
  EXPECT_EQ(figure.ticks, (std::vector<Tick>{{0, "fp32"}, {1, "fp16"}}));
  EXPECT_EQ(figure.curves, (std::vector<Curve>{{"pp.activation", {{0, 12, 12, 12}, {1, 6, 6, 6}}},
                                               {"pp.gradient", {{0, 12, 12, 12}, {1, 6, 6, 6}}}}));
}

TEST(StudyPages, APartThatFailedIsNotAPartThatWasNotRun) {
  Outcome failed = invented({});
  failed.failure = "lost";
  EXPECT_TRUE(
      contains(bandwidth_page({failed}, {}), "No run of part \"bandwidth\" has ended well"));
  EXPECT_TRUE(contains(optimus_page({failed}), "Nothing of part \"optimus-cc loss\" was run: "));
}

TEST(StudyPages, ALossThatIsNoNumberDiverged) {
  Outcome outcome = invented({.part = "optimus-cc loss", .method = "CB", .dp = 2});
  for (StepRow& row : outcome.steps) row.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(contains(optimus_page({outcome}), "| CB | diverged | – |"));
}

}  // namespace
}  // namespace laconic
