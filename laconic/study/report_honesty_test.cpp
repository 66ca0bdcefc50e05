// The page "honesty": counters and predictions.
#include <gtest/gtest.h>

#include <limits>

#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;
using testing::invented_peer;
using testing::kRate;
using testing::kSecondsBytes;

TEST(StudyPages, HeadersAreTakenOffTheCounters) {
  EXPECT_EQ(header_bytes(10), 660);
  EXPECT_EQ(expected_interface_bytes(2 * 1448), 2 * 1514);
  EXPECT_EQ(expected_interface_bytes(1449), 1449 + 2 * 66);
  Outcome outcome = invented({});
  outcome.traffic = {{"pp.activation", 1, 0, 900e3, 0, 0, 0}, {"control", 1, 0, 100e3, 0, 0, 0}};
  outcome.interface_packets = 1000;
  outcome.interface_sent_bytes = 1020e3 + 66e3;
  const std::vector<MeterCheck> checks = meter_checks({outcome});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_NEAR(difference(checks[0]), 0.02, 1e-12);
  Outcome far = outcome;
  far.trial.method = "far";
  far.interface_sent_bytes += 50e3;
  const std::string page = honesty_page({outcome, far});
  EXPECT_TRUE(contains(page, "**1 of 2 runs is within 3 %**")) << page;
  EXPECT_TRUE(contains(page, "| 1.000 | 1.086 | 1.0860 | 1.046 | 0.066 | +2.0 % |")) << page;
  EXPECT_TRUE(contains(page, "| **+7.0 %** |")) << page;
}

TEST(StudyPages, WithoutCountersThereIsNoCheck) {
  EXPECT_TRUE(meter_checks({invented({.rate = "none"}), invented_peer({})}).empty());
}

// Unshaped, 4 ranks, 8 microbatches, F = 0.01 and B = 0.02: gpipe takes (8 + 3) (F + B) and the
// latency of six messages one after the other.
TEST(StudyPages, APredictionIsTheWalkOfTheSchedule) {
  Outcome outcome = invented({.part = "honesty", .method = "gpipe", .rate = "unshaped"});
  EXPECT_NEAR(*predicted_seconds(outcome), 11 * 0.03 + 6 * 70e-6, 1e-9);
  // A second for each activation and each gradient, of 8 x 3 of both.
  outcome.trial.rate = kRate;
  for (ClassTotal& total : outcome.traffic) {
    total.wire_bytes = 24 * kSecondsBytes * static_cast<double>(outcome.steps.size());
  }
  const double one_way = 3 * 1.0 + 7 * 1.0;
  EXPECT_NEAR(*predicted_seconds(outcome), 2 * one_way + 4 * 0.03 + 6 * 70e-6, 1e-3);
}

// 0.8 s of a step in 8 microbatches: 0.1 s each, half of it forward and half backward.
TEST(StudyPages, APredictionHasTheTimeOfEncoding) {
  Outcome outcome =
      invented({.part = "honesty", .method = "gpipe", .rate = "unshaped", .codec_seconds = 0.8});
  EXPECT_NEAR(*predicted_seconds(outcome), 11 * 0.13 + 6 * 70e-6, 1e-9);
  outcome.traffic.push_back({"embedding.tied", 1, 0, 0, 0, 0, 100});  // not between stages
  EXPECT_NEAR(*predicted_seconds(outcome), 11 * 0.13 + 6 * 70e-6, 1e-9);
}

// Bytes are means over a run: of little use where its first epoch, or its first steps, differ.
TEST(StudyPages, WhatSendsTheSameInEveryStepIsPredicted) {
  Outcome bypass = invented({.method = "rotated, bypass auto"});
  bypass.trial.set["steering.bypass"] = "auto";
  const Outcomes outcomes = {invented({}),
                             invented({.method = "fp16"}),
                             invented({.method = "rotated"}),
                             invented({.method = "ac-sgd", .steps = 4, .preset = "ac-sgd"}),
                             bypass,
                             invented({.method = "rotated", .rate = "none"}),
                             invented({.part = "honesty", .method = "1f1b"})};
  std::vector<std::string> methods;
  for (const Prediction& one : predictions_of(outcomes)) methods.push_back(one.method);
  EXPECT_EQ(methods, (std::vector<std::string>{"1f1b", "fp32", "fp16", "rotated"}));
}

// What a rank sends to both sides shares its outlet: 1f1b takes longer than with a wire for each
// pair.
TEST(StudyPages, APredictionIsOfHostsBehindASwitch) {
  Outcome outcome = invented({.part = "honesty", .method = "1f1b", .rate = kRate});
  for (ClassTotal& total : outcome.traffic) {
    total.wire_bytes = 24 * kSecondsBytes * static_cast<double>(outcome.steps.size());
  }
  const Schedule schedule = lowered(one_forward_one_backward({4, 4, 8}));
  Costs costs;
  costs.stages = {{0.01, 0.02, 0.01, 0.01, 0}};
  costs.edges = {{1, 1, 0}};
  costs.latency = 70e-6;
  costs.wiring = Wiring::switched;
  EXPECT_NEAR(*predicted_seconds(outcome), estimate(schedule, costs).makespan, 1e-6);
  costs.wiring = Wiring::pairs;
  EXPECT_GT(*predicted_seconds(outcome), 1.1 * estimate(schedule, costs).makespan);
  // The embedding's gradient at the end, a second of it from either side.
  const double without = *predicted_seconds(outcome);
  const double bytes = 2 * kSecondsBytes * static_cast<double>(outcome.steps.size());
  outcome.traffic.push_back({"embedding.tied", 1, bytes, bytes, 0, 0, 0});
  EXPECT_NEAR(*predicted_seconds(outcome), without + 1, 1e-6);
}

TEST(StudyPages, WithoutMeasurementsThereIsNoPrediction) {
  const Outcome good = invented({.part = "honesty", .method = "1f1b"});
  EXPECT_TRUE(predicted_seconds(good));
  Outcome bad = good;
  bad.computing_seconds.pop_back();
  EXPECT_FALSE(predicted_seconds(bad));
  bad = good;
  bad.command.clear();
  EXPECT_FALSE(predicted_seconds(bad));
  bad = good;
  bad.trial.set["pipeline.schedule"] = "file:mine.txt";
  EXPECT_FALSE(predicted_seconds(bad));
  bad.trial.set["pipeline.schedule"] = "interleaved";  // which needs two chunks
  EXPECT_FALSE(predicted_seconds(bad));
  bad = good;
  bad.computing_seconds[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(predicted_seconds(bad));
}

}  // namespace
}  // namespace laconic
