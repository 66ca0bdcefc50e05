#include "laconic/study/report_case.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::Invented;
using testing::invented;
using testing::invented_peer;

Case case_of(std::vector<Outcome> rounds) {
  const Trial trial = rounds.front().trial;
  return {trial.part, trial.method, trial.rate, std::move(rounds)};
}

TEST(StudyCase, RoundsOfOneMethodAndRateAreOneCase) {
  Outcome failed = invented({.round = 3});
  failed.failure = "out of memory";
  const std::vector<Outcome> outcomes = {
      invented({.round = 1, .seconds = 1}), invented({.rate = "1gbit"}), failed,
      invented({.round = 2, .seconds = 3}), invented({.part = "loss"})};
  const std::vector<Case> cases = cases_of(outcomes, "bandwidth");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].rounds.size(), 2u);
  EXPECT_EQ(seconds_of(cases[0]), (Spread{2, 1, 3, 2}));
  EXPECT_EQ(rates_of(cases), (std::vector<std::string>{"1gbit", "100mbit"}));
  EXPECT_EQ(find_case(cases, "fp32", "1gbit"), &cases[1]);
  EXPECT_EQ(find_case(cases, "fp32", "2gbit"), nullptr);
}

TEST(StudyCase, RatesGoFromFastToSlow) {
  EXPECT_EQ(sorted_rates({"50mbit", "unshaped", "10gbit", "none", "500mbit"}),
            (std::vector<std::string>{"none", "unshaped", "10gbit", "500mbit", "50mbit"}));
}

TEST(StudyCase, ALinkCarriesPayloadBesideHeaders) {
  EXPECT_DOUBLE_EQ(*payload_bits("1514kbit"), 1448e3);
  EXPECT_FALSE(payload_bits("unshaped"));
  EXPECT_FALSE(payload_bits("none"));
}

TEST(StudyCase, SettingsAreOfTheTrialOrElseOfItsCommand) {
  Outcome outcome = invented({});
  EXPECT_EQ(setting_of(outcome, "train.batch"), "32");
  EXPECT_EQ(setting_of(outcome, "mesh.pp"), "4");
  outcome.trial.set["train.batch"] = "64";
  EXPECT_EQ(setting_of(outcome, "train.batch"), "64");
  EXPECT_FALSE(setting_of(outcome, "batch"));
  outcome.command = {"torch_ddp.py", "--batch", "8", "--batch", "16"};
  EXPECT_EQ(setting_of(outcome, "batch"), "16");
}

TEST(StudyCase, ShapesFollowFromSettings) {
  const RunShape shape = shape_of(invented({.pp = 4, .dp = 2}));
  EXPECT_EQ(shape.pp, 4);
  EXPECT_EQ(shape.dp, 2);
  EXPECT_EQ(shape.batch, 64);
  EXPECT_EQ(microbatches_of(shape), 8);
  Outcome bare = invented({});
  bare.command.clear();
  EXPECT_EQ(microbatches_of(shape_of(bare)), 0);
  EXPECT_FALSE(is_known(samples_per_second(case_of({bare}))));
  EXPECT_FALSE(is_known(tokens_per_second(case_of({bare}), {})));
}

// 70 samples, two replicas of 8 a step: 35 in each shard. Steps 2 to 4 have samples of the first
// epoch alone, step 5 of both, later ones of later epochs.
TEST(StudyCase, StepsOfTheFirstEpochCountApart) {
  Outcome outcome = invented({.steps = 7, .dp = 2, .preset = "ac-sgd"});
  outcome.trial.set["train.batch"] = "16";
  outcome.samples = 70;
  const auto numbers = [&](Which which) {
    std::vector<std::int64_t> steps;
    for (const StepRow& row : steps_of(outcome, which)) steps.push_back(row.step);
    return steps;
  };
  EXPECT_EQ(numbers(Which::first_epoch), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(numbers(Which::counted), (std::vector<std::int64_t>{6, 7, 8}));
  outcome.trial.warmup = 7;  // still finding out what to bypass, say
  EXPECT_EQ(numbers(Which::counted), (std::vector<std::int64_t>{8}));
  outcome.trial.warmup = 1;
  outcome.samples = 0;  // not known, so neither are epochs
  EXPECT_TRUE(numbers(Which::counted).empty());
  outcome.trial.preset.clear();
  EXPECT_TRUE(numbers(Which::first_epoch).empty());
  EXPECT_EQ(numbers(Which::counted).size(), 7u);
}

TEST(StudyCase, TokensOfASampleMayBeKnownFromAnother) {
  Outcome bare = invented({.part = "data-parallel", .seconds = 2, .pp = 1, .dp = 4});
  bare.trial.model = "replicas";
  bare.command = {"laconic", "train", "--set", "train.batch=8"};
  Outcome peer = invented_peer({.part = "data-parallel", .method = "DDP"});
  const Case one = case_of({bare});
  EXPECT_FALSE(is_known(tokens_per_second(one, {one, case_of({peer})})));  // of another model
  peer.trial.model = "replicas";
  EXPECT_DOUBLE_EQ(tokens_per_second(one, {one, case_of({peer})}).median, 4 * 128);
}

TEST(StudyCase, MemoryIsThePresetsUnlessSet) {
  Trial trial;
  EXPECT_FALSE(has_memory(trial));
  trial.preset = "ac-sgd";
  EXPECT_TRUE(has_memory(trial));
  trial.set["pp.activation.memory"] = "none";
  EXPECT_FALSE(has_memory(trial));
  trial.preset.clear();
  trial.set["pp.activation.memory"] = "delta";
  EXPECT_TRUE(has_memory(trial));
}

TEST(StudyCase, FiguresOfARoundAreExact) {
  const Case one = case_of({invented({.seconds = 2,
                                      .raw_bytes = 40e6,
                                      .wire_bytes = 8e6,
                                      .codec_seconds = 0.25,
                                      .exposed_seconds = 0.5})});
  EXPECT_DOUBLE_EQ(samples_per_second(one).median, 16);
  EXPECT_DOUBLE_EQ(tokens_per_second(one, {}).median, 16 * 128);
  EXPECT_DOUBLE_EQ(exposed_share(one).median, 0.25);
  EXPECT_DOUBLE_EQ(first_rank_bytes(one).median, 2e6);
  EXPECT_DOUBLE_EQ(wire_bytes_per_step(one).median, 8e6);
  EXPECT_DOUBLE_EQ(codec_seconds_per_step(one).median, 0.25);
}

TEST(StudyCase, ASingleRoundShowsItsSteps) {
  Outcome outcome = invented({.seconds = 2});
  outcome.steps[1].seconds = 1.6;
  outcome.steps[3].seconds = 3.2;
  EXPECT_EQ(text(seconds_of(case_of({outcome})), 1), "2.0 (steps 1.6–3.2, n 1)");
  EXPECT_EQ(text(samples_per_second(case_of({outcome})), 0), "16 (steps 10–20, n 1)");
  EXPECT_EQ(text(seconds_of(case_of({outcome, outcome})), 1), "2.0 (n 2)");
}

TEST(StudyCase, CommunicationIsWhatTheRateAddsToAnUnshapedStep) {
  const std::vector<Case> part = {case_of({invented({.rate = "unshaped", .seconds = 1})}),
                                  case_of({invented({.rate = "50mbit", .seconds = 4})})};
  EXPECT_DOUBLE_EQ(*communication_share(part, "fp32", "50mbit"), 0.75);
  EXPECT_FALSE(communication_share(part, "fp32", "10mbit"));
  EXPECT_FALSE(communication_share({part[1]}, "fp32", "50mbit"));
}

TEST(StudyCase, ControlAndPreflightAreNotTraining) {
  Outcome outcome = invented({});
  outcome.traffic.push_back({"control", 1, 1e9, 1e9, 0, 0, 0});
  outcome.traffic.push_back({"preflight", 1, 1e9, 1e9, 0, 0, 0});
  EXPECT_DOUBLE_EQ(wire_bytes_per_step(case_of({outcome})).median, 24e6);
  EXPECT_DOUBLE_EQ(busiest_outlet(outcome).raw, 8e6);
}

// Rank 0 sends a quarter of all; step 1 is whole, later ones a tenth. The kernel counted 5 % more
// than the meter, the agreement between ranks included.
TEST(StudyCase, BytesOfTheNetworkAreOfStepsThatCount) {
  Outcome outcome = invented({.steps = 2, .pp = 1, .dp = 4});
  outcome.steps[0].wire_bytes = 10e6;
  outcome.steps[1].wire_bytes = outcome.steps[2].wire_bytes = 1e6;
  outcome.traffic = {{"dp.gradient", 1, 0, 48e6, 0, 0, 0}, {"control", 1, 0, 2e6, 0, 0, 0}};
  outcome.interface_sent_bytes = 1.05 * 50e6;
  EXPECT_DOUBLE_EQ(network_bytes_per_step(case_of({outcome})).median, 4e6 * 1.05);
  outcome.interface_sent_bytes = 0;
  EXPECT_FALSE(is_known(network_bytes_per_step(case_of({outcome}))));
}

TEST(StudyCase, OfAPeerTheMeterIsNotKnown) {
  const Case peer = case_of({invented_peer({})});
  EXPECT_FALSE(is_known(exposed_share(peer)));
  EXPECT_FALSE(is_known(first_rank_bytes(peer)));
  EXPECT_FALSE(is_known(wire_bytes_per_step(peer)));
  EXPECT_DOUBLE_EQ(network_bytes_per_step(peer).median, 24e6);
  EXPECT_DOUBLE_EQ(tokens_per_second(peer, {}).median, 128 * 128);
}

// Per step: activations 90 and gradients 60 over three edges, the embedding 60 at both ends, sums
// 80 on all four ranks. Rank 0 sends 30 + 30 + 20, ranks 1 and 2 30 + 20 + 20, rank 3 20 + 30 + 20.
TEST(StudyCase, TheBusiestOutletIsFoundByPlace) {
  Outcome outcome = invented({});
  const auto all = static_cast<double>(outcome.steps.size());
  outcome.traffic = {{"pp.activation", 1, 90 * all, 9 * all, 0, 0, 0},
                     {"pp.gradient", 1, 60 * all, 6 * all, 0, 0, 0},
                     {"embedding.tied", 1, 60 * all, 60 * all, 0, 0, 0},
                     {"dp.gradient", 1, 80 * all, 8 * all, 0, 0, 0}};
  EXPECT_DOUBLE_EQ(busiest_outlet(outcome).raw, 80);
  EXPECT_DOUBLE_EQ(busiest_outlet(outcome).wire, 3 + 30 + 2);
  outcome.traffic[2].raw_bytes = 0;  // now a middle rank
  EXPECT_DOUBLE_EQ(busiest_outlet(outcome).raw, 70);
  EXPECT_DOUBLE_EQ(busiest_outlet(outcome).wire, 7);
}

TEST(StudyCase, LossesAreMeansOfFive) {
  Outcome outcome = invented({});
  outcome.steps.clear();
  for (int step = 1; step <= 7; ++step) outcome.steps.push_back({step, 1, 10.0 * step, 0, 0});
  EXPECT_DOUBLE_EQ(*loss_at(outcome, 7), 50);
  EXPECT_DOUBLE_EQ(*loss_at(outcome, 2), 15);
  EXPECT_FALSE(loss_at(outcome, 0));
  EXPECT_FALSE(loss_at(outcome, 8));
  outcome.steps[6].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(loss_at(outcome, 7));
}

TEST(StudyCase, CentredLossesAreMeansOfAsManyOnEitherSide) {
  Outcome outcome = invented({});
  outcome.steps.clear();
  for (int step = 1; step <= 7; ++step) outcome.steps.push_back({step, 1, 1.0 * step * step, 0, 0});
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 1), 1);
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 2), (1 + 4 + 9) / 3.0);
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 3), (1 + 4 + 9 + 16 + 25) / 5.0);
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 5), (9 + 16 + 25 + 36 + 49) / 5.0);
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 6), (25 + 36 + 49) / 3.0);
  EXPECT_DOUBLE_EQ(*centred_loss_at(outcome, 7), 49);
  EXPECT_FALSE(centred_loss_at(outcome, 0));
  EXPECT_FALSE(centred_loss_at(outcome, 8));
  outcome.steps[6].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(centred_loss_at(outcome, 5));
  EXPECT_TRUE(centred_loss_at(outcome, 4));
}

}  // namespace
}  // namespace laconic
