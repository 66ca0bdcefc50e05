// The page "pays", and what the summary says of it.
#include <gtest/gtest.h>

#include <limits>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;
using testing::kRate;
using testing::kSecondsBytes;

TEST(StudyPages, BreakEvenIsWhereTheCodecTakesAsLongAsTheBytes) {
  // 1448 bytes saved for 8 us: 1448 Mbit/s of payload, 1514 of link.
  EXPECT_DOUBLE_EQ(*break_even_bits(1448, 8e-6), 1514e6);
  EXPECT_FALSE(break_even_bits(0, 1));
  EXPECT_FALSE(break_even_bits(-1, 1));
  EXPECT_FALSE(break_even_bits(1, 0));
  EXPECT_FALSE(break_even_bits(std::numeric_limits<double>::quiet_NaN(), 1));
}

// The busiest outlet of a pipeline of four sends a third of activations and gradients together, so
// 24 s less 3 s of all ranks' bytes are 7 s less of one's. A mean rank saves a quarter of 21 s for
// 0.4 s more of its codec: 5.25 x 64 Mbit/s / 0.4.
TEST(StudyPages, WhatIsSavedAndWhatItCosts) {
  const Outcomes outcomes = {
      invented({.rate = kRate, .seconds = 10, .codec_seconds = 0.1}),
      invented({.method = "rotated",
                .rate = kRate,
                .seconds = 4,
                .raw_bytes = 24 * kSecondsBytes,
                .wire_bytes = 3 * kSecondsBytes,
                .codec_seconds = 0.5}),
  };
  const std::vector<Payment> payments = payments_of(outcomes);
  ASSERT_EQ(payments.size(), 1u);
  EXPECT_NEAR(*saved_seconds(payments[0]), 7, 1e-9);
  EXPECT_NEAR(payments[0].codec_seconds.median, 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(payments[0].gain.median, 2.5);
  EXPECT_FALSE(loses(payments[0]));
  EXPECT_TRUE(contains(pays_page(outcomes, {}),
                       "| 64mbit | rotated | +6000.0 | 7000.0 | 500.0 (n 1) | 2.50x "
                       "(n 1) | 840 Mbit/s | pays |"))
      << pays_page(outcomes, {});
}

TEST(StudyPages, WhatTheBaselinesCodecTakesAsWellHasNoBreakEven) {
  const auto even = [](double whole, double encoded) {
    const std::vector<Payment> payments =
        payments_of({invented({.codec_seconds = whole}),
                     invented({.method = "fp16", .wire_bytes = 12e6, .codec_seconds = encoded})});
    return composed_break_even(payments.at(0)).has_value();
  };
  EXPECT_TRUE(even(0, 1));
  EXPECT_TRUE(even(0.7, 1));
  EXPECT_FALSE(even(0.9, 1));
  EXPECT_FALSE(even(1.1, 1));
  EXPECT_FALSE(even(0, 0));
}

// Totals are of steps before it decided, too.
TEST(StudyPages, OfAMethodThatBypassesOnlyStepsAreCompared) {
  Outcomes outcomes = {
      invented({.seconds = 2}),
      invented({.method = "fp16", .seconds = 2.5, .wire_bytes = 12e6, .codec_seconds = 0.1})};
  EXPECT_TRUE(is_known(payments_of(outcomes).at(0).codec_seconds));
  outcomes[1].trial.set["steering.bypass"] = "auto";
  EXPECT_TRUE(contains(pays_page(outcomes, {}),
                       "| 100mbit | fp16 | -500.0 | – | – | **0.80x (n 1)** | – | **loses** |"))
      << pays_page(outcomes, {});
}

TEST(StudyPages, WithoutABaselineNoStepIsShorter) {
  EXPECT_TRUE(contains(pays_page({invented({.method = "fp16"})}, {}), "| 100mbit | fp16 | – | "));
}

TEST(StudyPages, LosingCasesAreBold) {
  const Outcomes outcomes = {
      invented({.round = 1, .seconds = 1}),
      invented({.round = 2, .seconds = 1}),
      invented({.method = "rotated", .round = 1, .seconds = 2}),
      invented({.method = "rotated", .round = 2, .seconds = 2}),
      invented({.method = "fp16", .round = 1, .seconds = 0.9}),
      invented({.method = "fp16", .round = 2, .seconds = 1.3}),
      invented({.method = "DirectQ, 4 and 8 bits", .seconds = 0.5}),
  };
  EXPECT_EQ(losing_sentences(outcomes),
            "**Encoding made steps longer in 2 of 3 measured cases**, methods at rates, against "
            "sending everything whole at the same rate:\n\n"
            "- bandwidth, 100mbit: rotated **0.50x**; fp16 **0.91x** (within the spread)\n\n");
  const std::string page = pays_page(outcomes, {});
  EXPECT_TRUE(contains(page, "| **0.50x (n 2)** | – | **loses** |")) << page;
  EXPECT_TRUE(contains(page, "| **0.91x (0.77–1.11, n 2)** | – | **loses**, within the spread |"));
}

TEST(StudyPages, TheSummaryHasALineForEachPart) {
  const auto run = [](const std::string& method, const std::string& rate, double seconds) {
    return invented({.method = method, .rate = rate, .seconds = seconds});
  };
  Outcomes outcomes = {
      run("fp32", "unshaped", 1), run("fp16", "unshaped", 0.99), run("rotated", "unshaped", 2),
      run("fp32", "100mbit", 4),  run("fp16", "100mbit", 2),     run("rotated", "100mbit", 5),
      run("fp32", "14mbit", 8),   run("fp16", "14mbit", 4),      run("rotated", "14mbit", 2)};
  const std::string bandwidth =
      "- bandwidth: nothing gains 5 % at unshaped; 2 of 6 cases lost, at worst rotated at unshaped "
      "**0.50x**\n";
  EXPECT_EQ(losing_summary(outcomes),
            "**Encoding made steps longer in 2 of 6 measured cases**, methods at rates, against "
            "sending everything whole at the same rate:\n\n" +
                bandwidth + "\n");
  EXPECT_TRUE(contains(summary_page(outcomes, {}, {}, ""), bandwidth));
  for (Outcome other : {invented({.method = "nothing", .seconds = 1}),
                        invented({.method = "both", .seconds = 1.25})}) {
    other.trial.part = "end-to-end";
    outcomes.push_back(other);
  }
  EXPECT_TRUE(contains(losing_summary(outcomes),
                       bandwidth +
                           "- end-to-end: nothing gains 5 % at 100mbit; 1 of 1 case lost, at worst "
                           "both at 100mbit **0.80x**\n\n"))
      << losing_summary(outcomes);
}

// It does not lose, but is not worth it either.
TEST(StudyPages, TheSummarySaysWhereNothingGains) {
  const Outcomes outcomes = {invented({.seconds = 1.04}), invented({.method = "fp16"})};
  EXPECT_EQ(losing_summary(outcomes),
            "The one case that was measured did not lose against sending everything whole.\n\n"
            "- bandwidth: nothing gains 5 % at 100mbit\n\n");
  EXPECT_FALSE(contains(losing_sentences(outcomes), "- bandwidth"));
}

TEST(StudyPages, ASmallLossIsNotRoundedAway) {
  const Outcomes outcomes = {invented({.seconds = 1}),
                             invented({.method = "fp16", .seconds = 1.001})};
  EXPECT_TRUE(contains(losing_sentences(outcomes), "fp16 **0.9990x**"));
}

TEST(StudyPages, WinsMustBeMoreThanNoise) {
  const auto verdict = [](const std::vector<double>& whole, const std::vector<double>& encoded) {
    Outcomes outcomes;
    for (const double seconds : whole) outcomes.push_back(invented({.seconds = seconds}));
    for (const double seconds : encoded)
      outcomes.push_back(invented({.method = "fp16", .seconds = seconds}));
    const std::string page = pays_page(outcomes, {});
    const std::size_t row = page.find("| 100mbit | fp16 |"), end = page.find(" |\n", row);
    return page.substr(page.rfind("| ", end - 1) + 2, end - page.rfind("| ", end - 1) - 2);
  };
  EXPECT_EQ(verdict({1.04}, {1}), "no difference seen");
  EXPECT_EQ(verdict({1.06}, {1}), "pays");
  EXPECT_EQ(verdict({1}, {1.01}), "**loses**");
  EXPECT_EQ(verdict({1, 1.2}, {1.01, 1.02}), "pays, within the spread");
  EXPECT_EQ(verdict({1.03, 1.04}, {1, 1.01}), "pays");
  EXPECT_EQ(verdict({1, 1.2}, {1.11, 1.12}), "**loses**, within the spread");
}

TEST(StudyPages, TheMeasuredBreakEvenLiesBetweenNeighbours) {
  const auto payments = [](const std::vector<double>& gains) {
    const char* rates[] = {"unshaped", "1gbit", "100mbit", "20mbit"};
    std::vector<Payment> all;
    for (std::size_t i = 0; i < gains.size(); ++i)
      all.push_back({"bandwidth",
                     "fp16",
                     rates[i],
                     "fp32",
                     false,
                     gains[i] > 0 ? Spread{gains[i], gains[i], gains[i], 1} : Spread{},
                     {},
                     {}});
    return all;
  };
  EXPECT_EQ(measured_break_even(payments({0.8, 0.9, 1.5, 2})), "between 1gbit and 100mbit");
  EXPECT_EQ(measured_break_even(payments({0.8, 0, 1.5})), "between unshaped and 100mbit");
  EXPECT_EQ(measured_break_even(payments({1.1, 0.9, 1.5})),
            "between unshaped and 1gbit; between 1gbit and 100mbit");
  EXPECT_EQ(measured_break_even(payments({1, 1.5})), "pays at every rate measured");
  EXPECT_EQ(measured_break_even(payments({0.9, 0.5})), "loses at every rate measured");
  EXPECT_EQ(measured_break_even(payments({0, 0})), "");
}

TEST(StudyPages, AFirstEpochMayLoseAlone) {
  Outcome outcome = invented({.method = "ac-sgd", .steps = 4, .preset = "ac-sgd"});
  outcome.steps[1].seconds = 4;
  for (std::size_t i = 2; i < outcome.steps.size(); ++i) outcome.steps[i].seconds = 1;
  const Outcomes outcomes = {invented({.seconds = 2}), outcome};
  EXPECT_TRUE(contains(losing_sentences(outcomes),
                       "in 0 of 1 measured cases**, methods at rates, and in 1 first "
                       "epoch, against"));
  EXPECT_TRUE(
      contains(losing_summary(outcomes),
               "- bandwidth: of first epochs 1 lost, at worst ac-sgd, first epoch at 100mbit "
               "**0.50x**\n"))
      << losing_summary(outcomes);
  EXPECT_TRUE(contains(losing_sentences(outcomes), "ac-sgd, first epoch **0.50x**"));
}

TEST(StudyPages, WithoutLosersItIsSaid) {
  Outcomes outcomes = {invented({.seconds = 2}), invented({.method = "fp16", .seconds = 1})};
  EXPECT_EQ(losing_sentences(outcomes),
            "The one case that was measured did not lose against sending everything whole.\n\n");
  outcomes.push_back(invented({.method = "rotated", .seconds = 1}));
  EXPECT_TRUE(contains(losing_sentences(outcomes), "None of the 2 cases that were measured, "));
  EXPECT_TRUE(contains(losing_sentences({}), "Nothing can be said"));
  // Without its baseline a method neither wins nor loses.
  EXPECT_TRUE(contains(losing_sentences({outcomes[1]}), "Nothing can be said"));
}

}  // namespace
}  // namespace laconic
