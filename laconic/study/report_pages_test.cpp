#include "laconic/study/report_pages.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::Invented;
using testing::invented;
using testing::invented_peer;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Target& target_of(const std::vector<Target>& targets, const std::string& beginning) {
  for (const Target& target : targets) {
    if (target.name.starts_with(beginning)) return target;
  }
  throw std::runtime_error("no target begins with " + beginning);
}

// 1448 of 1514 bytes are payload, so that 8e6 x 1448 / 1514 bytes take a second at 64mbit.
constexpr const char* kRate = "64mbit";
constexpr double kSecondsBytes = 8e6 * 1448 / 1514;

TEST(StudyPages, ATableEscapesPipes) {
  EXPECT_EQ(markdown_table({{"name", Align::left}, {"value"}}, {{"a|b", "1"}, {"c\nd", ""}}),
            "| name | value |\n|---|--:|\n| a\\|b | 1 |\n| c d |  |\n\n");
  EXPECT_THROW(markdown_table({{"name"}}, {{}}), std::logic_error);
}

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

TEST(StudyPages, AFigureIsALinkOrASentence) {
  const Drawn drawn = {{"speed"}, {"speed", "loss"}, "gnuplot is not installed"};
  EXPECT_EQ(figure_text(drawn, "speed", "Speed", "2026-11-15/"),
            "![Speed](2026-11-15/figures/speed.svg)\n\nSpeed ([PNG](2026-11-15/figures/speed.png), "
            "[data](2026-11-15/figures/speed.dat))\n\n");
  EXPECT_EQ(figure_text(drawn, "loss", "Loss"),
            "Loss: not drawn, since gnuplot is not installed; the [data](figures/loss.dat) are "
            "there.\n\n");
  EXPECT_EQ(figure_text(drawn, "gain", "Gain"),
            "Gain: nothing to draw, the runs that it needs are missing.\n\n");
}

TEST(StudyPages, UnshapedStandsBeyondTheFastestRate) {
  EXPECT_EQ(rate_ticks({"none", "unshaped", "10gbit", "50mbit"}),
            (std::vector<Tick>{{100000, "unshaped"}, {10000, "10gbit"}, {50, "50mbit"}}));
}

TEST(StudyPages, BreakEvenIsWhereTheCodecTakesAsLongAsTheBytes) {
  // 1448 bytes saved for 8 us: 1448 Mbit/s of payload, 1514 of link.
  EXPECT_DOUBLE_EQ(*break_even_bits(1448, 8e-6), 1514e6);
  EXPECT_FALSE(break_even_bits(0, 1));
  EXPECT_FALSE(break_even_bits(-1, 1));
  EXPECT_FALSE(break_even_bits(1, 0));
  EXPECT_FALSE(break_even_bits(std::numeric_limits<double>::quiet_NaN(), 1));
}

// The busiest outlet of a pipeline of four sends a third of activations and gradients together, so
// 24 s less 3 s of all ranks' bytes are 7 s less of one's.
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
                       "| 64mbit | rotated | 7000.0 | 500.0 (n 1) | 2.50x "
                       "(n 1) | 1.12 Gbit/s | pays |"))
      << pays_page(outcomes, {});
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
  EXPECT_TRUE(contains(summary_page(outcomes, {}, {}, ""),
                       "- bandwidth, 100mbit: 2 of 3, at worst rotated **0.50x**\n"));
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
                       "epochs, against"));
  EXPECT_TRUE(
      contains(losing_summary(outcomes),
               "- bandwidth, 100mbit: first epochs: 1, at worst ac-sgd, first epoch **0.50x**"))
      << losing_summary(outcomes);
  EXPECT_TRUE(contains(losing_sentences(outcomes), "ac-sgd, first epoch **0.50x**"));
}

TEST(StudyPages, WithoutLosersItIsSaid) {
  const Outcomes outcomes = {invented({.seconds = 2}), invented({.method = "fp16", .seconds = 1})};
  EXPECT_TRUE(contains(losing_sentences(outcomes), "None of the 1 cases"));
  EXPECT_TRUE(contains(losing_sentences({}), "Nothing can be said"));
  // Without its baseline a method neither wins nor loses.
  EXPECT_TRUE(contains(losing_sentences({outcomes[1]}), "Nothing can be said"));
}

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
  EXPECT_TRUE(contains(page, "**1 of 2 runs are within 3 %**")) << page;
  EXPECT_TRUE(contains(page, "| 1.000 | 1.086 | 1.0860 | 1.046 | 0.066 | +2.0 % |")) << page;
  EXPECT_TRUE(contains(page, "| **+7.0 %** |")) << page;
}

TEST(StudyPages, AProbeIsMeteredToo) {
  Outcome probed = invented({.method = "probed"});
  probed.interface_sent_bytes += 50e6;
  const std::string name = "byte meter";
  EXPECT_EQ(target_of(targets_of({invented({}), probed}), name).judgement, Judgement::missed);
  probed.traffic.push_back({"preflight", 1, 50e6, 50e6, 0, 0, 0});
  EXPECT_EQ(target_of(targets_of({invented({}), probed}), name).judgement, Judgement::met);
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

TEST(StudyPages, LossesAreComposedWithStepTimes) {
  const auto losses_of = [](const std::string& method, double slope) {
    Outcome outcome = invented({.part = "loss", .method = method, .rate = "unshaped", .steps = 9});
    for (StepRow& row : outcome.steps) row.loss = 10 - slope * static_cast<double>(row.step);
    return outcome;
  };
  const Outcomes outcomes = {
      losses_of("DDP", 0.1), losses_of("laconic, 4 bits", 0.1),
      invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 4}),
      invented(
          {.part = "data-parallel", .method = "laconic, 4 bits", .seconds = 2, .pp = 1, .dp = 4})};
  const std::vector<ComposedLoss> composed = composed_losses(outcomes, "100mbit");
  ASSERT_EQ(composed.size(), 2u);
  EXPECT_DOUBLE_EQ(common_seconds(composed), 20);                      // ten steps of the faster
  EXPECT_DOUBLE_EQ(loss_after(composed[0], 20).median, 10 - 0.1 * 3);  // five steps, their mean
  EXPECT_DOUBLE_EQ(loss_after(composed[1], 20).median,
                   10 - 0.1 * 8);  // ten steps, mean of the last five
  EXPECT_FALSE(is_known(loss_after(composed[0], 3)));
  EXPECT_NEAR(*loss_excess_percent(outcomes, "laconic, 4 bits"), 0, 1e-12);
  EXPECT_FALSE(loss_excess_percent(outcomes, "laconic, raw"));
  const std::string page = data_parallel_page(outcomes, {});
  EXPECT_TRUE(contains(page, "### 100mbit, after 20.0 s")) << page;
  EXPECT_TRUE(contains(page,
                       "| DDP | 5 | 9.7000 (n 1) |\n| laconic, 4 bits | 10 | 9.2000 "
                       "(n 1) |"))
      << page;
  EXPECT_TRUE(composed_losses(outcomes, "1gbit").empty());
}

// Ten steps whole, of 4 s as raw's, then steps of 1 s.
TEST(StudyPages, StepsBeforeAMethodBeginsTakeAsLongAsThoseOfWhatIsSentWhole) {
  const std::string adam = "laconic, compressed Adam, sign", hook = "DDP, PowerSGD hook rank 32";
  Outcome losses = invented({.part = "loss", .method = adam, .rate = "unshaped", .steps = 19});
  losses.trial.set["dp.gradient.method"] = "compressed_adam";
  losses.trial.set["dp.gradient.warmup"] = "10";
  Outcome peers = invented_peer({.part = "loss", .method = hook, .rate = "unshaped", .steps = 19});
  peers.trial.set["hook"] = "powersgd";
  Outcomes outcomes = {losses,
                       peers,
                       invented({.part = "data-parallel", .method = adam, .seconds = 1}),
                       invented_peer({.part = "data-parallel", .method = hook, .seconds = 2}),
                       invented({.part = "data-parallel", .method = "laconic, raw", .seconds = 4}),
                       invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 5})};
  const std::vector<ComposedLoss> composed = composed_losses(outcomes, "100mbit");
  ASSERT_EQ(composed.size(), 2u);
  EXPECT_DOUBLE_EQ(common_seconds(composed), 2 * 5 + 18 * 2);  // of 50 and 46
  EXPECT_EQ(steps_after(composed[0], 8), 2u);
  EXPECT_EQ(steps_after(composed[0], 39.9), 9u);
  EXPECT_EQ(steps_after(composed[0], 45), 15u);
  EXPECT_EQ(steps_after(composed[1], 10), 2u);
  EXPECT_EQ(steps_after(composed[1], 14), 4u);
  EXPECT_EQ(loss_figure(outcomes).curves[0].points[10].x, 41);
  outcomes.resize(4);  // nothing to place the first steps at
  EXPECT_TRUE(composed_losses(outcomes, "100mbit").empty());
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

Outcome later(const std::string& method, const std::string& rate, double seconds) {
  return invented(
      {.method = method, .rate = rate, .seconds = seconds, .steps = 4, .preset = "ac-sgd"});
}

TEST(StudyPages, TargetsOfTheSweepAreAtItsSlowestRate) {
  Outcomes outcomes = {invented({.rate = "unshaped", .seconds = 1}),
                       invented({.rate = "100mbit", .seconds = 4}),
                       invented({.rate = "50mbit", .seconds = 10}),
                       invented({.method = "fp16", .rate = "50mbit", .seconds = 4}),
                       later("ac-sgd", "unshaped", 1),
                       later("ac-sgd", "100mbit", 1.2),
                       later("ac-sgd", "50mbit", 2)};
  std::vector<Target> targets = targets_of(outcomes);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").judgement, Judgement::met);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").number,
            "5.00x (n 1); unshaped: 1.00x; 100mbit: 3.33x");
  EXPECT_EQ(target_of(targets, "ac-sgd against fp16").judgement, Judgement::missed);
  EXPECT_TRUE(
      contains(target_of(targets, "ac-sgd against fp16").why, "a step of ac-sgd takes 2000 ms"));
  EXPECT_EQ(target_of(targets, "ac-sgd at 100mbit").number, "83 % (n 1)");
  EXPECT_EQ(target_of(targets, "ac-sgd at 100mbit").judgement, Judgement::met);
  outcomes[2] = invented({.rate = "50mbit", .seconds = 4});  // a quarter of its unshaped speed
  targets = targets_of(outcomes);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").judgement, Judgement::not_measured);
  EXPECT_TRUE(contains(target_of(targets, "ac-sgd against fp32").why,
                       "no such rate: at 50mbit, its slowest, fp32 has 25 %"));
}

TEST(StudyPages, OptimusIsJudgedWhereCommunicationIsHalf) {
  const auto run = [](const std::string& method, const std::string& rate, double seconds,
                      double exposed) {
    return invented({.part = "optimus-cc",
                     .method = method,
                     .rate = rate,
                     .seconds = seconds,
                     .exposed_seconds = exposed,
                     .dp = 2});
  };
  const std::string all = "CB + LEP + FE + SC";
  // What rank 0 waits for is not what is asked: the bubble is in it.
  Outcomes outcomes = {run("base", "138mbit", 2, 1.4), run("base", "50mbit", 4, 2),
                       run(all, "138mbit", 1.6, 0.2), run(all, "50mbit", 2, 1),
                       run("base", "unshaped", 1.1, 0.4)};
  const Target target = target_of(targets_of(outcomes), "optimus-cc");
  EXPECT_EQ(target.number,
            "1.25x (n 1); 50mbit: 2.00x; communication is 45 % of base's step (composed)");
  EXPECT_EQ(target.judgement, Judgement::missed);
  EXPECT_EQ(target.why,
            "a step of CB + LEP + FE + SC takes 1600 ms at 138mbit: rank 0 waits 200 ms of it for "
            "others and the network, a rank spends 0 ms on encoding and decoding; with neither it "
            "would be 1.43x (composed)");
  outcomes[4] = run("base", "unshaped", 1.36, 0.4);  // 32 % at 138mbit, 66 % at 50mbit
  const Target none = target_of(targets_of(outcomes), "optimus-cc");
  EXPECT_EQ(none.judgement, Judgement::not_measured);
  EXPECT_EQ(none.why, "no rate at which communication is 35 to 65 % of base's step");
  outcomes.pop_back();
  EXPECT_EQ(target_of(targets_of(outcomes), "optimus-cc").why,
            "base was not measured both unshaped and at a rate");
}

TEST(StudyPages, BypassMayBeSlowerWithinTheSpread) {
  Outcomes outcomes = {invented({.round = 1, .seconds = 1}), invented({.round = 2, .seconds = 1.2}),
                       later("ac-sgd, bypass auto", "100mbit", 1.15)};
  const std::string name = "\"ac-sgd, bypass auto\"";
  EXPECT_EQ(target_of(targets_of(outcomes), name).judgement, Judgement::met);
  outcomes[2] = later("ac-sgd, bypass auto", "100mbit", 1.32);
  const Target target = target_of(targets_of(outcomes), name);
  EXPECT_EQ(target.judgement, Judgement::missed);
  EXPECT_EQ(target.number, "100mbit: 0.83x (0.76–0.91, n 1) against fp32");
  EXPECT_EQ(target.why, "steps are longer at 100mbit by 20.0 %, and one round has no spread");
}

TEST(StudyPages, RawIsJudgedByMediansAloneAndItsSpreadIsTold) {
  const auto judged = [](const std::vector<double>& peers, const std::vector<double>& ours) {
    Outcomes outcomes;
    for (const double seconds : peers)
      outcomes.push_back(
          invented_peer({.part = "data-parallel", .method = "DDP", .seconds = seconds}));
    for (const double seconds : ours)
      outcomes.push_back(invented({.part = "data-parallel",
                                   .method = "laconic, raw",
                                   .seconds = seconds,
                                   .pp = 1,
                                   .dp = 4}));
    return target_of(targets_of(outcomes), "\"laconic, raw\"");
  };
  EXPECT_EQ(judged({1}, {1}).judgement, Judgement::met);
  EXPECT_EQ(judged({1}, {1.005}).judgement, Judgement::missed);
  EXPECT_EQ(judged({1}, {1.005}).why,
            "steps are longer at 100mbit by 0.5 %, and one round has no spread");
  EXPECT_EQ(judged({1, 1.2}, {1.1, 1.2}).judgement, Judgement::missed);
  EXPECT_EQ(judged({1, 1.2}, {1.1, 1.2}).why,
            "steps are longer at 100mbit by 4.5 %, within the spread");
  EXPECT_EQ(judged({1, 1}, {1.1, 1.2}).why, "steps are longer at 100mbit by 15.0 %");
}

// Of six epochs the first takes 4 s a step, the others 1 s: 1.5 s on average.
TEST(StudyPages, EndToEndTheFirstEpochCounts) {
  const auto run = [](const std::string& method, const std::string& rate, double seconds) {
    return invented({.part = "end-to-end",
                     .method = method,
                     .rate = rate,
                     .seconds = seconds,
                     .steps = 4,
                     .dp = 2,
                     .preset = method == "both" ? "ac-sgd" : ""});
  };
  Outcomes outcomes = {run("nothing", "unshaped", 1), run("nothing", "14mbit", 9),
                       run("both", "14mbit", 1)};
  outcomes[2].steps[1].seconds = 4;
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").number, "6.00x (n 1)");
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::met);
  outcomes[2].steps[1].seconds = 7;  // 4.5x
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::missed);
  outcomes[1] = run("nothing", "14mbit", 4.5);
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::not_measured);
}

TEST(StudyPages, ThePolicyMustKeepTheLoss) {
  const auto ours = [](const std::string& part, const std::string& method, double seconds) {
    return invented({.part = part, .method = method, .seconds = seconds, .pp = 1, .dp = 4});
  };
  Outcome bad = ours("loss", "laconic, sign", 1);
  for (StepRow& row : bad.steps) row.loss *= 1.01;
  const Outcomes outcomes = {
      invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 8.5}),
      invented_peer({.part = "data-parallel", .method = "DDP, 5 MB buckets", .seconds = 8}),
      invented_peer({.part = "data-parallel", .method = "DDP, fp16 hook", .seconds = 4}),
      ours("data-parallel", "laconic, raw", 9),
      ours("data-parallel", "laconic, 4 bits", 2),
      ours("data-parallel", "laconic, sign", 1),
      invented_peer({.part = "loss", .method = "DDP"}),
      ours("loss", "laconic, 4 bits", 1),
      bad};
  const std::vector<Target> targets = targets_of(outcomes);
  const std::string name =
      "best policy whose loss is at most 0.5 % above DDP's, against the fastest DDP that sends "
      "whole "
      "gradients, at ";
  EXPECT_EQ(
      target_of(targets, name + "100mbit").number,
      "laconic, 4 bits (loss +0.00 % after 4 steps, one seed) against DDP, 5 MB buckets: 4.00x "
      "(n 1); beside it DDP, fp16 hook: 2.00x (n 1)");
  EXPECT_EQ(target_of(targets, name + "100mbit").judgement, Judgement::met);
  EXPECT_EQ(target_of(targets, name + "20mbit").judgement, Judgement::not_measured);
  EXPECT_EQ(target_of(targets, "\"laconic, raw\"").judgement, Judgement::missed);
  EXPECT_EQ(target_of(targets, "\"laconic, raw\"").why,
            "steps are longer at 100mbit by 12.5 %, and one round has no spread");
}

TEST(StudyPages, CommandsCanBeTypedAgain) {
  Outcome outcome = invented({});
  outcome.command = {"laconic",  "train",  "my file.toml",       "--set",
                     "a.b=it's", "--json", "my out/run/lab.json"};
  outcome.failure = "refused";
  const std::string text = commands_text({outcome}, {.command = "laconic study"});
  EXPECT_TRUE(contains(text, "#   laconic study\n"));
  EXPECT_TRUE(contains(text,
                       "\nmkdir -p 'my out/run'\n\n"
                       "# bandwidth, 100mbit, fp32, round 1: failed\n"
                       "laconic train 'my file.toml' --set 'a.b=it'\\''s' --json "
                       "'my out/run/lab.json'\n\n"))
      << text;
}

TEST(StudyPages, FailuresAreListedWithTheirReasons) {
  Outcome failed = invented({.round = 2});
  failed.failure = "exit code 3: rank 2 is lost";
  failed.commit = "fff0000";
  const ReportFacts facts = {"2026-11-15", "a machine", "abc1234", "laconic study", "short", 4};
  Outcome skipped = invented({.round = 3});
  skipped.failure = "skipped: no PyTorch";
  const std::string page = contents_page({invented({}), failed, skipped}, facts);
  EXPECT_TRUE(contains(page, "- 3 of 4 trials; 1 failed; 1 skipped\n"));
  EXPECT_TRUE(contains(page, "- bandwidth, 100mbit, fp32, round 2: exit code 3: rank 2 is lost\n"));
  EXPECT_TRUE(contains(page, "- of commit fff0000: 1 of 3 runs\n"));
  EXPECT_TRUE(contains(contents_page({invented({})}, facts), "## Runs that failed\n\nNone.\n"));
}

}  // namespace
}  // namespace laconic
