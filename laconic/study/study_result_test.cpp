// Rows, rules and the page of a study, from outcomes that nobody measured.
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/study/study_group.hpp"
#include "laconic/study/study_page.hpp"
#include "laconic/study/study_rule.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;

const char* const kStudy = R"(
title = "Mine"
about = "What it is about."
rounds = 3
measures = [{ name = "accuracy", unit = "%", scale = 100, digits = 1 }]
baseline = "majority"
[[axis]]
name = "codec"
settings = ["none", { name = "Q1", about = "two bits", value = 2, set = { a.b = 1 } }, { name = "Q2", value = 4 }]
[[axis]]
name = "mesh"
settings = ["1x4", "4x1"]
[[part]]
name = "p"
axes = ["codec", "mesh"]
[[table]]
title = "By mesh"
part = "p"
measure = "accuracy"
rows = "codec"
columns = "mesh"
[[figure]]
name = "f"
title = "A figure"
part = "p"
x = "codec"
y = "accuracy"
curves = "mesh"
[[rule]]
name = "two bits are worse"
measure = "accuracy"
of = { codec = "Q1" }
against = { codec = "none" }
is = "below"
)";

class StudyResult : public ::testing::Test {
 protected:
  StudyResult() {
    apply_study(kStudy, "mine.toml", study);
    planned = expand(study);
    for (const StudyTrial& one : planned) {
      StudyRow row = row_of(one, {});
      const std::string& codec = one.settings.at("codec");
      // Rounds differ by more than settings do.
      const double luck = 0.05 * one.trial.round;
      row.measures["accuracy"] = luck + (codec == "none" ? 0.8 : codec == "Q1" ? 0.77 : 0.8);
      row.measures["majority"] = 0.5;
      row.machine = "a machine";
      rows.push_back(row);
    }
  }
  StudyRow& row(const std::string& id) {
    for (StudyRow& one : rows)
      if (one.id == id) return one;
    throw std::runtime_error(id);
  }
  Rule rule(const std::string& of, const std::string& is, std::size_t cases = 0) {
    Rule made = study.rules.at(0);
    made.of = {{"codec", {of}}};
    made.relation = *parse_relation(is);
    made.cases = cases;
    return made;
  }
  RuleVerdict verdict(const Rule& made) { return judge(made, planned, rows).verdict; }

  StudyFile study;
  std::vector<StudyTrial> planned;
  std::vector<StudyRow> rows;
};

TEST_F(StudyResult, SurvivesItsLinesOfJson) {
  rows[0].failure = "it \"failed\"\n";
  rows[0].command = {"laconic", "train"};
  std::string text;
  for (const StudyRow& one : rows) text += to_json_line(one) + "\n";
  EXPECT_EQ(parse_rows(text, "x"), rows);
  rows[1].measures["accuracy"] = std::nan("");
  EXPECT_TRUE(std::isnan(parse_rows(to_json_line(rows[1]), "x").at(0).measures.at("accuracy")));
  try {
    parse_rows(text + "{}\n", "lines.jsonl");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_TRUE(contains(error.what(), "line 19")) << error.what();
  }
}

TEST_F(StudyResult, IsMeanAndDeviationOfTheSample) {
  const Average average = average_of({1, 2, 3, std::nan("")});
  EXPECT_EQ(average.mean, 2);
  EXPECT_DOUBLE_EQ(average.deviation, 1);
  EXPECT_EQ(average.count, 3u);
  const MeasureSpec percent{.name = "a", .unit = "%", .scale = 100, .digits = 1};
  EXPECT_EQ(to_text(average_of({0.5, 0.5}), percent), "50.0 ± 0.0 % (n 2)");
  EXPECT_EQ(to_text(average_of({0.5}), percent), "50.0 % (n 1)");
  EXPECT_EQ(to_text(average_of({}), percent), "–");
  const MeasureSpec range{.name = "a", .figures = 3, .has_range = true};
  EXPECT_EQ(to_text(average_of({1.5, 2.5}), range), "2.00 (1.50–2.50, n 2)");
  EXPECT_EQ(to_text(average_of({1234, 1236}), range), "1235 (1234–1236, n 2)");
}

TEST_F(StudyResult, KeepsOrBreaksRulesByPairsOfRounds) {
  const struct {
    const char *of, *is;
    RuleVerdict verdict;
  } cases[] = {
      {"Q1", "below", RuleVerdict::kept},
      {"Q1", "below up to noise", RuleVerdict::kept},  // pairs differ by 0.03 in every round
      {"Q1", "above up to noise", RuleVerdict::broken},
      {"Q1", "not below", RuleVerdict::broken},
      {"Q1", "within 2 %", RuleVerdict::broken},
      {"Q1", "within 4 %", RuleVerdict::kept},
      {"Q1", "at least 3 % below", RuleVerdict::kept},
      {"Q1", "at least 4 % below", RuleVerdict::broken},
      {"Q1", "at most 0.05 below", RuleVerdict::kept},
      {"Q1", "at most 0.01 below", RuleVerdict::broken},
      {"Q2", "within 0 %", RuleVerdict::kept},
      {"Q2", "below", RuleVerdict::broken},
      {"Q2", "not above", RuleVerdict::kept}};
  for (const auto& c : cases) EXPECT_EQ(verdict(rule(c.of, c.is)), c.verdict) << c.of << c.is;
  const RuleResult result = judge(rule("Q1", "below"), planned, rows);
  ASSERT_EQ(result.pairs.size(), 2u);
  EXPECT_EQ(result.pairs[0].where, "p, 1x4");
  EXPECT_EQ(result.pairs[0].difference.count, 3u);
  EXPECT_NEAR(result.pairs[0].difference.mean, -0.03, 1e-12);
}

TEST_F(StudyResult, JudgesCasesThatCountAlone) {
  Rule made = rule("Q1", "below");
  made.where = {{"mesh", {"4x1"}}};
  const RuleResult result = judge(made, planned, rows);
  ASSERT_EQ(result.pairs.size(), 1u);
  EXPECT_EQ(result.pairs[0].where, "p, 4x1");
}

TEST_F(StudyResult, ForgivesNoise) {
  row("p/none/q2-1x4/1").measures["accuracy"] += 0.02;
  row("p/none/q2-1x4/2").measures["accuracy"] -= 0.01;
  EXPECT_EQ(verdict(rule("Q2", "not above")), RuleVerdict::broken);
  EXPECT_EQ(verdict(rule("Q2", "not above up to noise")), RuleVerdict::kept);
}

TEST_F(StudyResult, CannotJudgeWhatIsMissingUnlessTheRestDecides) {
  for (int round = 1; round <= 3; ++round)
    row("p/none/q1-4x1/" + std::to_string(round)).failure = "lost";
  EXPECT_EQ(verdict(rule("Q1", "below")), RuleVerdict::undecided);
  EXPECT_EQ(verdict(rule("Q1", "above")), RuleVerdict::broken);
  EXPECT_EQ(verdict(rule("Q1", "below", 1)), RuleVerdict::kept);
  EXPECT_EQ(verdict(rule("Q1", "above", 2)), RuleVerdict::broken);
  const std::string text = to_text(judge(rule("Q1", "below"), planned, rows), study.measures[0]);
  EXPECT_TRUE(contains(text, "in 1 of 2 cases; 1 not measured, as Q1 against none at p, 4x1"))
      << text;
  rows.resize(1);  // one round is no measure of noise
  EXPECT_EQ(verdict(rule("Q1", "below up to noise")), RuleVerdict::undecided);
}

TEST_F(StudyResult, IsAPageWithRulesTablesSettingsAndFailures) {
  row("p/none/q2-4x1/1").failure = "exit code 9: broken";
  rows.pop_back();
  const std::string page = study_page(study, planned, rows, "laconic study mine.toml", true);
  for (const char* part :
       {"# Mine\n\nWhat it is about.\n\n- 17 of 18 trials, 6 settings; 1 failed or were skipped",
        "Of 1 rules 1 is kept, 0 are broken, 0 cannot be judged.",
        "| two bits are worse | accuracy below | kept | in 2 of 2 cases; as: Q1 87.0 against none "
        "90.0 (-3.33 %, n 3) at p, 1x4 |",
        "## By mesh\n\n| codec | 1x4 | 4x1 |", "| Q1 | 87.0 ± 5.0 % (n 3) |",
        "| Q2 | 4x1 | 90.0 % (n 1) | 50.0 % (n 1) |",  // of three rounds one failed, one is missing
        "| Q1 | two bits | `a.b=1` |", "- p/none/q2-4x1/1: exit code 9: broken",
        "![A figure](figures/f.svg)", "[PNG](figures/f.png)", "- machine: a machine\n"})
    EXPECT_TRUE(contains(page, part)) << part << " in\n" << page;
  EXPECT_EQ(study_page(study, planned, rows, "laconic study mine.toml", true), page);
  const std::string empty = study_page(study, planned, {}, "", false);
  EXPECT_TRUE(contains(empty, "cannot be judged")) << empty;
  EXPECT_TRUE(contains(empty, "Nothing of it has been run.")) << empty;
}

TEST_F(StudyResult, ComparesWithANumberOfTheFile) {
  const struct {
    const char *of, *is;
    RuleVerdict verdict;
  } cases[] = {
      {"Q1", "at least 0.87", RuleVerdict::kept},  {"Q1", "at least 0.88", RuleVerdict::broken},
      {"Q1", "at most 87.1 %", RuleVerdict::kept}, {"Q1", "at most 0.86", RuleVerdict::broken},
      {"Q1", "within 90 %", RuleVerdict::kept},    {"Q1", "within 0.1", RuleVerdict::broken}};
  for (const auto& c : cases) {
    Rule made = study.rules.at(0);
    made.of = {{"codec", {c.of}}};
    made.against.clear();
    made.relation = *parse_relation(c.is, true);
    EXPECT_EQ(verdict(made), c.verdict) << c.is;
    const std::string text = to_text(judge(made, planned, rows), study.measures[0]);
    EXPECT_TRUE(contains(text, ": Q1 87.0 ± 5.0 % (n 3) at p, 1x4")) << text;
  }
  for (const char* wrong : {"below", "at least 3 % above", "at least", "at most 2 times"})
    EXPECT_FALSE(parse_relation(wrong, true)) << wrong;
  EXPECT_FALSE(parse_relation("at least 4.9"));
  EXPECT_EQ(verdict(rule("Q1", "at most 0.97 times")), RuleVerdict::kept);  // 0.9667
  EXPECT_EQ(verdict(rule("Q1", "at most 0.96 times")), RuleVerdict::broken);
  EXPECT_EQ(verdict(rule("Q1", "at least 0.96 times")), RuleVerdict::kept);
  EXPECT_EQ(verdict(rule("Q1", "at least 1.1 times")), RuleVerdict::broken);
  EXPECT_EQ(verdict(rule("Q1", "at most 1.1 times")), RuleVerdict::kept);
}

TEST_F(StudyResult, IsSeveralPagesWhereTheFileSaysSo) {
  StudyFile several = study;
  several.pages = {{"more", "More of it", "In prose."}};
  several.tables[0].page = several.rules[0].page = "more";
  several.tables[0].about = "What it shows.";
  several.rules[0].is = "above";
  several.rules[0].relation = *parse_relation("above");
  several.rules[0].lists = true;
  const std::string first = study_page(several, planned, rows, "", true);
  EXPECT_TRUE(contains(first, "[More of it](more.md). Of 1 rules 0 are kept, 1 is broken"))
      << first;
  EXPECT_FALSE(contains(first, "By mesh")) << first;
  EXPECT_FALSE(contains(first, "Part \"p\"")) << first;
  const std::string more = study_page(several, planned, rows, "", true, "more");
  for (const char* part :
       {"# More of it\n\nIn prose.\n\n## Rules", "## By mesh\n\nWhat it shows.\n\n| codec |",
        "Not so, \"two bits are worse\":\n\n- Q1 87.0 against none 90.0 (-3.33 %, n 3) at p, 1x4\n"
        "- Q1 87.0 against"})
    EXPECT_TRUE(contains(more, part)) << part << " in\n" << more;
}

TEST_F(StudyResult, HasAColumnForEachMeasureAndNoLineWithoutOne) {
  TableSpec table{.part = "p", .measures = {"accuracy", "majority"}, .rows = {"codec"}};
  table.only = {{"mesh", {"4x1"}}};
  EXPECT_TRUE(contains(table_text(study, rows, table), "| codec | accuracy | majority |\n"));
  table.columns = {"mesh"};
  EXPECT_TRUE(
      contains(table_text(study, rows, table), "| codec | 4x1, accuracy | 4x1, majority |"));
  table.measures = {"accuracy"};
  for (StudyRow& one : rows)
    if (one.settings.at("codec") == "Q1") one.measures.clear();
  const std::string text = table_text(study, rows, table);
  EXPECT_FALSE(contains(text, "Q1")) << text;
  EXPECT_TRUE(contains(text, "| Q2 | 90.0 ± 5.0 % (n 3) |")) << text;
}

TEST_F(StudyResult, StacksSeveralMeasures) {
  FigureSpec spec = study.figures.at(0);
  spec.y = {"accuracy", "majority"};
  spec.only = {{"mesh", {"4x1"}}};
  const Figure figure = figure_of(study, rows, spec);
  EXPECT_EQ(figure.kind, FigureKind::stacked);
  ASSERT_EQ(figure.ticks.size(), 3u);
  EXPECT_EQ(figure.ticks[1].label, "Q1");
  ASSERT_EQ(figure.curves.size(), 2u);
  EXPECT_NEAR(figure.curves[0].points.at(1).y, 87, 1e-9);
  EXPECT_NEAR(figure.curves[1].points.at(1).y, 50, 1e-9);
}

TEST_F(StudyResult, IsDrawnWithItsSpread) {
  const std::vector<Figure> figures = study_figures(study, rows);
  ASSERT_EQ(figures.size(), 1u);
  ASSERT_EQ(figures[0].curves.size(), 2u);
  ASSERT_EQ(figures[0].curves[0].points.size(), 2u);  // "none" has no value
  const Point& point = figures[0].curves[0].points[0];
  EXPECT_EQ(point.x, 2);
  EXPECT_NEAR(point.y, 87, 1e-9);
  EXPECT_NEAR(point.most - point.y, 5, 1e-9);
}

}  // namespace
}  // namespace laconic
