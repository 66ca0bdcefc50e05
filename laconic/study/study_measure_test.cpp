// Numbers of outcomes, and those that a study file makes of them.
#include "laconic/study/study_measure.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/study/expression.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;

TEST(Expression, PutsProductsBeforeSumsFromTheLeft) {
  const ValueOf value_of = [](const std::string& name) -> std::optional<double> {
    if (name == "a") return 3;
    if (name == "b.c_2") return 4;
    return {};
  };
  const struct {
    const char* text;
    double value;
  } cases[] = {{"1 + 2 * a", 7},
               {"(1 + 2) * a", 9},
               {"12 / 2 / a", 2},
               {"10 - a - b.c_2", 3},
               {"1e3*b.c_2", 4000},
               {"( a )", 3},
               {"0.5 * (a + b.c_2) - 1 / b.c_2", 3.25}};
  for (const auto& c : cases) {
    EXPECT_EQ(check_expression(c.text), "");
    EXPECT_EQ(evaluate(c.text, value_of), c.value) << c.text;
  }
  for (const char* unknown : {"a / (a - 3)", "a + x", "x - x", "0 * x"})
    EXPECT_FALSE(evaluate(unknown, value_of)) << unknown;
  const struct {
    const char *text, *problem;
  } wrong[] = {{"a +", "a number, a name or a bracket is missing after 'a +'"},
               {"(a", "')' is missing after '(a'"},
               {"a b", "an operator is missing after 'a '"},
               {"* a", "is missing after ''"}};
  for (const auto& c : wrong)
    EXPECT_TRUE(contains(check_expression(c.text), c.problem)) << check_expression(c.text);
}

TEST(Measures, AreEveryNumberOfAnOutcome) {
  Outcome outcome = testing::invented(
      {.seconds = 2, .wire_bytes = 12e6, .codec_seconds = 0.25, .exposed_seconds = 0.5});
  outcome.metrics = {{"accuracy", 0.75}};
  outcome.validation_loss = 1.5;
  const auto measures = measures_of(outcome);
  const auto steps = static_cast<double>(outcome.steps.size());
  const std::map<std::string, double> expected = {
      {"step_seconds", 2},
      {"exposed_seconds", 0.5},
      {"accuracy", 0.75},
      {"validation_loss", 1.5},
      {"samples_per_second", 16},  // the command has a batch of 32
      {"computing_seconds", 8 * 0.03},
      {"codec_seconds", 0.25},
      {"sent_bytes", 12e6},
      {"raw_bytes", 24e6},
      {"first_rank_bytes", 3e6},
      {"ranks", 4},
      {"pp.activation.sent_bytes", outcome.traffic.at(0).wire_bytes / steps},
      {"pp.activation.shorter", 2}};
  for (const auto& [name, value] : expected) EXPECT_DOUBLE_EQ(measures.at(name), value) << name;
  EXPECT_NEAR(measures.at("meter_error"), 0, 1e-9);
  // The kernel's bytes of a step: headers of all packets, too.
  EXPECT_NEAR(measures.at("network_bytes"), outcome.interface_sent_bytes / steps, 1);
  EXPECT_FALSE(measures.contains("first_epoch_seconds"));
  outcome.failure = "lost";
  EXPECT_TRUE(measures_of(outcome).empty());
}

TEST(Measures, OfAPeerAreThoseThatItTells) {
  const auto measures = measures_of(testing::invented_peer({.seconds = 2, .wire_bytes = 5e6}));
  EXPECT_EQ(measures.at("samples_per_second"), 64);
  EXPECT_EQ(measures.at("network_bytes"), 5e6);
  for (const char* name : {"sent_bytes", "exposed_seconds", "first_rank_bytes", "meter_error"})
    EXPECT_FALSE(measures.contains(name)) << name;
}

// 64 samples, 32 in a step: steps 1 and 2 are the first epoch, of which the first step allocates.
TEST(Measures, TellTheFirstEpochOfLinksThatRemember) {
  Outcome outcome = testing::invented({.steps = 4, .preset = "ac-sgd"});
  for (StepRow& row : outcome.steps) row.seconds = static_cast<double>(row.step);
  EXPECT_EQ(measures_of(outcome).at("first_epoch_seconds"), 2);
  outcome.samples = 100;  // the third step ends below, the fourth has samples of both
  EXPECT_EQ(measures_of(outcome).at("first_epoch_seconds"), 2.5);
  outcome.trial.set["pp.activation.memory"] = "none";
  EXPECT_FALSE(measures_of(outcome).contains("first_epoch_seconds"));
}

TEST(Measures, LossIsOfTheLastFiveSteps) {
  Outcome outcome = testing::invented({.steps = 9});
  for (StepRow& row : outcome.steps) row.loss = static_cast<double>(row.step);
  EXPECT_EQ(measures_of(outcome).at("loss"), 8);
  outcome.steps.resize(3);
  EXPECT_EQ(measures_of(outcome).at("loss"), 2);
  outcome.steps[2].loss = std::nan("");
  EXPECT_FALSE(measures_of(outcome).contains("loss"));
}

TEST(Measures, TellEncodingFromDecodingWhereTheProgramDid) {
  Outcome outcome = testing::invented({.codec_seconds = 0.5});
  const auto steps = static_cast<double>(outcome.steps.size());
  EXPECT_FALSE(measures_of(outcome).contains("decode_seconds"));
  outcome.traffic[0].decode_seconds = 0.125 * steps;
  outcome.traffic[0].active_seconds = 2 * steps;
  const auto measures = measures_of(outcome);
  const std::map<std::string, double> expected = {{"decode_seconds", 0.125},
                                                  {"encode_seconds", 0.375},
                                                  {"codec_seconds", 0.5},
                                                  {"pp.activation.decode_seconds", 0.125},
                                                  {"pp.activation.encode_seconds", 0.125},
                                                  {"pp.gradient.encode_seconds", 0.25},
                                                  {"pp.activation.active_seconds", 2},
                                                  {"pp.activation.messages", 100 / steps},
                                                  {"messages", 200 / steps}};
  for (const auto& [name, value] : expected) EXPECT_DOUBLE_EQ(measures.at(name), value) << name;
}

// The warm-up's step takes 1000 seconds, the others one.
TEST(LossAfterSeconds, LiesBetweenEvaluationsAndNowhereElse) {
  Outcome outcome = testing::invented({.steps = 5});
  outcome.validations = {{1, 8}, {3, 6}, {4, std::nan("")}};
  outcome.validation_loss = 3;
  const std::vector<CurvePoint> curve = curve_of(outcome);
  EXPECT_EQ(curve, (std::vector<CurvePoint>{{1, 1000, 8}, {3, 1002, 6}, {6, 1005, 3}}));
  EXPECT_EQ(measures_of(outcome).at("trained_seconds"), 1005);
  const struct {
    double seconds;
    std::optional<double> loss;
  } cases[] = {{999, {}}, {1000, 8}, {1001, 7}, {1002, 6}, {1004, 4}, {1005, 3}, {1006, {}}};
  for (const auto& c : cases) EXPECT_EQ(loss_after(curve, c.seconds), c.loss) << c.seconds;
  outcome.validations.push_back({6, 3});  // of the end, which is not counted twice
  EXPECT_EQ(curve_of(outcome), curve);
  EXPECT_FALSE(loss_after({}, 0));
}

// What the slow one has reached when the fast one has made all its steps.
TEST(LossAfterSeconds, IsAMeasureOfAFileAndOfItsLines) {
  StudyFile study;
  apply_study(R"toml(
measures = [
  "validation_loss",
  { name = "early", after = "1002" },
  { name = "equal", after = "against.trained_seconds", against = { codec = "fast" } },
]
[[axis]]
name = "codec"
settings = ["slow", "fast"]
[[part]]
name = "p"
axes = ["codec"]
)toml",
              "mine.toml", study);
  std::vector<StudyRow> rows;
  for (const StudyTrial& one : expand(study)) {
    const bool is_slow = one.settings.at("codec") == "slow";
    Outcome outcome = testing::invented({.seconds = is_slow ? 2.0 : 1.0, .steps = 4});
    outcome.validations = {{1, 8}};
    outcome.validation_loss = 4;
    rows.push_back(row_of(one, outcome));
  }
  std::vector<StudyRow> again =
      parse_rows(to_json_line(rows[0]) + "\n" + to_json_line(rows[1]), "");
  EXPECT_EQ(again, rows);
  add_derived(study, again);
  EXPECT_EQ(again[0].measures.at("early"), 7);
  EXPECT_EQ(again[1].measures.at("early"), 6);
  EXPECT_EQ(again[0].measures.at("equal"), 6);
  EXPECT_EQ(again[1].measures.at("equal"), 4);
}

const char* const kDerived = R"toml(
rounds = 2
measures = [
  { name = "gain", is = "against.step_seconds / step_seconds", against = [{ codec = "none" }, { other = "base" }] },
  { name = "percent", is = "100 * (gain - 1)" },
  { name = "of_unshaped", is = "against.gain / gain", against = { rate = "fast" } },
]
[[axis]]
name = "rate"
settings = ["fast", "slow"]
[[axis]]
name = "codec"
settings = ["none", "Q"]
[[axis]]
name = "other"
settings = ["base", "X"]
[[part]]
name = "p"
axes = ["rate", "codec"]
[[part]]
name = "q"
axes = ["other"]
)toml";

TEST(Measures, AreDerivedByRoundFromTheFirstChoiceThatFits) {
  StudyFile study;
  apply_study(kDerived, "mine.toml", study);
  EXPECT_TRUE(check_study(study, "mine.toml").empty());
  std::vector<StudyRow> rows;
  for (const StudyTrial& one : expand(study)) {
    rows.push_back(row_of(one, {}));
    StudyRow& row = rows.back();
    const bool is_base = row.settings.contains("codec") ? row.settings.at("codec") == "none"
                                                        : row.settings.at("other") == "base";
    const bool is_slow = row.settings.contains("rate") && row.settings.at("rate") == "slow";
    row.measures["step_seconds"] = (is_base ? 4 * row.round : 2) * (is_base && is_slow ? 3 : 1);
  }
  add_derived(study, rows);
  const auto at = [&](const std::string& id) -> StudyRow& {
    for (StudyRow& row : rows)
      if (row.id == id) return row;
    throw std::runtime_error(id);
  };
  EXPECT_EQ(at("p/none/fast-q/1").measures.at("gain"), 2);
  EXPECT_EQ(at("p/none/fast-q/2").measures.at("gain"), 4);
  EXPECT_EQ(at("p/none/slow-q/2").measures.at("gain"), 12);
  EXPECT_EQ(at("p/none/fast-none/2").measures.at("gain"), 1);
  EXPECT_EQ(at("q/none/x/2").measures.at("gain"), 4);
  EXPECT_EQ(at("p/none/fast-q/2").measures.at("percent"), 300);
  EXPECT_DOUBLE_EQ(at("p/none/slow-q/2").measures.at("of_unshaped"), 1.0 / 3);
  EXPECT_FALSE(at("q/none/x/2").measures.contains("of_unshaped"));
  // Without the other's round there is nothing to compare with.
  for (StudyRow& row : rows) row.measures = {{"step_seconds", 1}};
  at("p/none/fast-none/1").failure = "lost";
  add_derived(study, rows);
  EXPECT_FALSE(at("p/none/fast-q/1").measures.contains("gain"));
  EXPECT_TRUE(at("p/none/fast-q/2").measures.contains("gain"));
}

TEST(Measures, RefuseExpressionsAndChoicesThatAreNone) {
  StudyFile study;
  try {
    apply_study(
        "measures = [{ name = \"x\", after = \"1 +\" }, { name = \"y\", is = \"1\", after = \"2\" "
        "}]",
        "mine.toml", study);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(contains(error.what(), "is missing after '1 +'")) << error.what();
    EXPECT_TRUE(contains(error.what(), "both is and after")) << error.what();
  }
  try {
    apply_study("measures = [{ name = \"x\", is = \"1 +\" }]\nspread = \"wide\"\n", "mine.toml",
                study);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(contains(error.what(), "is missing after '1 +'")) << error.what();
    EXPECT_TRUE(contains(error.what(), "spread 'wide' is none")) << error.what();
  }
  apply_study(kDerived, "mine.toml", study);
  study.measures[0].against[0] = {{"codec", {"Z"}}};
  EXPECT_EQ(check_study(study, "mine.toml").size(), 1u);
}

}  // namespace
}  // namespace laconic
