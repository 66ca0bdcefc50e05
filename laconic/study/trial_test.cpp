#include "laconic/study/trial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

Outcome some_outcome() {
  Outcome o;
  o.trial = {.part = "bandwidth",
             .method = "AC-SGD, 4 and 8 bits",
             .rate = "100mbit",
             .round = 2,
             .program = Program::ddp,
             .hosts = 8,
             .model = "pipeline",
             .preset = "ac-sgd",
             .set = {{"mesh.pp", "4"}, {"pp.gradient.codec", "quantise:bits=8,block=64"}},
             .warmup = 7,
             .steps = 3,
             .kinds = {{1, 1}, {2, 15.5}},
             .environment = {{"LACONIC_DEVICE_CODECS", "hollow"}}};
  o.failure = "exit code 3: \"rank 2\" is lost";
  o.commit = "98d0882";
  o.machine = "a machine, 2 cores";
  o.began = "2026-11-15T18:00:00Z";
  o.seconds = 12.5;
  o.command = {"laconic", "lab", "run", "--", "sh", "-c", "echo 'a b'"};
  o.steps = {{1, 0.1 + 0.2, 7.625, 1e9 + 1, 0.25}, {2, 1e-9, 6.5, 0, 0}};
  o.traffic = {{"pp.activation", 96, 5e8, 4e7, 1.5, 0.5, 0.125, 0.0625},
               {"control", 3, 1, 2, 3, 4, 5}};
  o.validations = {{1, 7.5}, {2, 6.25}};
  o.interface_sent_bytes = 123456789012.0;
  o.interface_packets = 98765;
  o.counted_sent_bytes = 4321;
  o.versions = "PyTorch 1, Python 3";
  o.computing_seconds = {0.07, 0.08};
  o.samples = 208;
  o.notes = {"bypass: pp.activation travels whole", "guard: fine"};
  return o;
}

TEST(OutcomeOfATrial, ComesBackFromItsFile) {
  for (const Outcome& outcome : {some_outcome(), Outcome{}})
    EXPECT_EQ(parse_outcome(to_json(outcome)), outcome) << to_json(outcome);
}

TEST(OutcomeOfATrial, KeepsALossThatIsNotFiniteAsNaN) {
  Outcome outcome = some_outcome();
  outcome.steps[1].loss = std::numeric_limits<double>::infinity();
  const Outcome back = parse_outcome(to_json(outcome));
  ASSERT_EQ(back.steps.size(), 2u);
  EXPECT_TRUE(std::isnan(back.steps[1].loss));
  EXPECT_EQ(back.steps[0], outcome.steps[0]);
}

TEST(OutcomeOfATrial, SurvivesTextThatIsNotUtf8) {
  Outcome outcome = some_outcome();
  outcome.failure = "bad \xff byte";
  EXPECT_EQ(parse_outcome(to_json(outcome)).failure, "bad \xef\xbf\xbd byte");
}

TEST(OutcomeOfATrial, IsRefusedWhenItsFileIsDamaged) {
  const std::string whole = to_json(some_outcome());
  const auto without = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
        without("\"failure\"", "\"future\""), without("\"ddp\"", "\"dpd\""),
        without("\"seconds\": 12.5", "\"seconds\": \"12.5\"")})
    EXPECT_THROW(parse_outcome(text), FileError) << text;
}

TEST(IdOfATrial, IsAPathOfSmallLettersDigitsAndDashes) {
  const struct {
    Trial trial;
    const char* id;
  } cases[] = {
      {{"bandwidth", "ac-sgd, 4 and 6 bits", "100mbit", 1},
       "bandwidth/100mbit/ac-sgd-4-and-6-bits/1"},
      {{"optimus-cc loss", "CB + LEP + FE", "unshaped", 2}, "optimus-cc-loss/unshaped/cb-lep-fe/2"},
      {{"honesty", "zero_bubble", "1.5gbit", 1}, "honesty/1-5gbit/zero-bubble/1"},
      {{"data-parallel", " (DDP), fp16 hook! ", "none", 10},
       "data-parallel/none/ddp-fp16-hook/10"}};
  for (const auto& c : cases) EXPECT_EQ(id_of(c.trial), c.id);
}

TEST(OfAStep, IsTheMedianOfTheStepsThatCount) {
  Outcome outcome;
  outcome.trial.warmup = 2;
  EXPECT_FALSE(of_a_step(outcome, &StepRow::seconds));
  outcome.steps = {{1, 100}, {2, 50}};
  EXPECT_FALSE(of_a_step(outcome, &StepRow::seconds));
  outcome.steps.push_back({3, 4});
  EXPECT_EQ(of_a_step(outcome, &StepRow::seconds), 4);
  outcome.steps.push_back({4, 2});
  EXPECT_EQ(of_a_step(outcome, &StepRow::seconds), 3);
  outcome.steps.push_back({5, 9, 7});
  EXPECT_EQ(of_a_step(outcome, &StepRow::seconds), 4);
  EXPECT_EQ(of_a_step(outcome, &StepRow::loss), 0);
}

TEST(OfAStep, IsTheMeanOfItsKindsInALongRun) {
  Outcome outcome;
  outcome.trial.warmup = 1;
  outcome.trial.steps = 5;
  outcome.trial.kinds = {{2, 1}, {2, 3}, {1, 0}};
  outcome.steps = {{1, 100}, {2, 9}, {3, 7}, {4, 1}, {5, 3}, {6, 50}};
  EXPECT_DOUBLE_EQ(*of_a_step(outcome, &StepRow::seconds), (8 + 3 * 2) / 4.0);
  // As many as there are of each kind, if that is what their shares say.
  outcome.trial.kinds = {{2, 2}, {2, 2}, {1, 1}};
  EXPECT_DOUBLE_EQ(*of_a_step(outcome, &StepRow::seconds), (9 + 7 + 1 + 3 + 50) / 5.0);
  outcome.steps.pop_back();  // of a kind that never came nothing is known
  EXPECT_FALSE(of_a_step(outcome, &StepRow::seconds));
}

}  // namespace
}  // namespace laconic
