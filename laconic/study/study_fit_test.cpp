// Cost models of a study file, on rows that nobody measured.
#include "laconic/study/study_fit.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/study/study_group.hpp"
#include "laconic/study/study_measure.hpp"
#include "laconic/study/study_page.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;

TEST(FittedCoefficients, AreThoseThatMadeTheNumbers) {
  std::vector<std::vector<double>> terms;
  std::vector<double> measured;
  for (int i = 1; i <= 12; ++i) {  // seconds, and bytes of quite another size
    terms.push_back({1, 1e9 / i, static_cast<double>(i * i % 7)});
    measured.push_back(0.5 * terms.back()[0] + 3e-9 * terms.back()[1] + 0.25 * terms.back()[2]);
  }
  const std::vector<double> found = fitted_coefficients(terms, measured);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_NEAR(found[0], 0.5, 1e-6);
  EXPECT_NEAR(found[1], 3e-9, 1e-15);
  EXPECT_NEAR(found[2], 0.25, 1e-6);
}

// A line that falls has no coefficient that is not below 0: what is left is its mean, weighted by
// how much a relative difference counts.
TEST(FittedCoefficients, AreNeverBelowZero) {
  const std::vector<double> found = fitted_coefficients({{1, 1}, {1, 2}, {1, 3}}, {3, 2, 1});
  EXPECT_EQ(found[1], 0);
  EXPECT_NEAR(found[0], (1.0 / 3 + 1.0 / 2 + 1) / (1.0 / 9 + 1.0 / 4 + 1), 1e-12);
}

TEST(FittedCoefficients, OfTermsThatAreAlikeAreFinite) {
  const std::vector<double> found =
      fitted_coefficients({{1, 2, 0}, {2, 4, 0}, {3, 6, 0}}, {2, 4, 6});
  EXPECT_NEAR(found[0] + 2 * found[1], 2, 1e-9);
  EXPECT_EQ(found[2], 0);
}

// The better model knows the rate, the other one does not.
const char* const kFittedStudy = R"toml(
rounds = 2
measures = [
  "step_seconds",
  { name = "link_seconds", is = "8e-6 * sent_bytes / value.rate" },
  "cost", "cost.error", "plain", "plain.error",
]
[[axis]]
name = "mesh"
settings = ["1x4", "2x2"]
[[axis]]
name = "codec"
settings = ["none", "A", "B", "C", "D", "E", "F", "G"]
[[axis]]
name = "rate"
settings = [{ name = "fast", value = 1000 }, { name = "slow", value = 100 }]
[[part]]
name = "time"
axes = ["mesh", "codec", "rate"]
[[fit]]
name = "cost"
title = "computing and bytes over rates"
measure = "step_seconds"
parts = "time"
terms = ["1", "encode_seconds", "link_seconds"]
by = "mesh"
[[fit]]
name = "plain"
measure = "step_seconds"
parts = "time"
terms = ["1", "sent_bytes"]
[[rule]]
name = "within a tenth"
measure = "cost.error"
of = { mesh = ["1x4", "2x2"] }
is = "at most 10 %"
[[figure]]
name = "fitted"
title = "fitted"
kind = "scatter"
part = "time"
x = "step_seconds"
y = "cost"
curves = "mesh"
[[figure]]
name = "heat"
title = "heat"
kind = "heat"
part = "time"
x = "rate"
y = "step_seconds"
curves = "codec"
)toml";

StudyFile fitted_study() {
  StudyFile study;
  apply_study(kFittedStudy, "mine.toml", study);
  refuse(check_study(study, "mine.toml"));
  return study;
}

double seconds_of(const StudyRow& row, double noise) {
  const double computing = row.settings.at("mesh") == "1x4" ? 2.0 : 0.5;
  const double rate = row.settings.at("rate") == "fast" ? 1000 : 100;
  return (computing + 1.5 * row.measures.at("encode_seconds") +
          1.1 * 8e-6 * row.measures.at("sent_bytes") / rate) *
         (1 + noise * std::sin(static_cast<double>(row.id.size() * 7 + row.id.back())));
}

std::vector<StudyRow> made_rows(const StudyFile& study, double noise) {
  std::vector<StudyRow> rows;
  for (const StudyTrial& one : expand(study)) {
    StudyRow& row = rows.emplace_back(row_of(one, {}));
    const int codec = row.settings.at("codec") == "none" ? 0 : row.settings.at("codec")[0] - '@';
    row.measures["sent_bytes"] = 5e7 / (1 + codec);
    row.measures["encode_seconds"] = codec * codec % 5 * 0.1;
    row.measures["step_seconds"] = seconds_of(row, noise);
  }
  return rows;
}

TEST(Fits, TellTheOtherHalfWhatMadeBoth) {
  const StudyFile study = fitted_study();
  std::vector<StudyRow> rows = made_rows(study, 0);
  add_derived(study, rows);
  for (const StudyRow& row : rows) {
    EXPECT_NEAR(row.measures.at("cost") / row.measures.at("step_seconds"), 1, 1e-6) << row.id;
    EXPECT_LT(row.measures.at("cost.error"), 1e-6) << row.id;
  }
  const std::vector<FittedModel> models = fit(study, study.fits[0], rows);
  ASSERT_EQ(models.size(), 2u);
  for (const FittedModel& model : models) {
    EXPECT_EQ(model.trials, 32u);
    EXPECT_NEAR(model.coefficients.at(0), model.of == "1x4" ? 2.0 : 0.5, 1e-6);
    EXPECT_NEAR(model.coefficients.at(1), 1.5, 1e-6);
    EXPECT_NEAR(model.coefficients.at(2), 1.1, 1e-6);
  }
  // One that does not know rates is far from what it has not seen.
  EXPECT_GT(fit(study, study.fits[1], rows).at(0).mean_error, 0.2);
}

// What is told of a trial must not depend on that trial, nor on other rounds of it.
TEST(Fits, TellNobodyWhatHeSaid) {
  const StudyFile study = fitted_study();
  std::vector<StudyRow> rows = made_rows(study, 0.02), changed = rows;
  const std::string name = rows[5].settings.at("codec");
  for (StudyRow& row : changed)
    if (row.settings == rows[5].settings) row.measures["step_seconds"] *= 10;
  add_derived(study, rows);
  add_derived(study, changed);
  EXPECT_EQ(changed[5].measures.at("cost"), rows[5].measures.at("cost")) << name;
  EXPECT_GT(changed[5].measures.at("cost.error"), 0.8);
  std::size_t moved = 0;  // the other half hears of it
  for (std::size_t i = 0; i < rows.size(); ++i)
    moved += changed[i].measures.at("cost") != rows[i].measures.at("cost") ? 1 : 0;
  EXPECT_GT(moved, 8u);
  EXPECT_LT(moved, 25u);
}

TEST(Fits, StandOnThePageWithTheirErrorsAndCanBeJudged) {
  const StudyFile study = fitted_study();
  std::vector<StudyRow> rows = made_rows(study, 0.02);
  add_derived(study, rows);
  const std::string page = study_page(study, expand(study), rows, "laconic study", false);
  EXPECT_TRUE(contains(page, "| computing and bytes over rates, 1x4 | ")) << page;
  EXPECT_TRUE(contains(page, "(link_seconds) | 32 | ")) << page;
  EXPECT_TRUE(contains(page, "| within a tenth | cost.error at most 10 % | kept |")) << page;
  const Figure scatter = figure_of(study, rows, study.figures[0]);
  EXPECT_EQ(scatter.kind, FigureKind::scatter);
  ASSERT_EQ(scatter.curves.size(), 2u);
  EXPECT_EQ(scatter.curves[0].points.size(), 16u);
  const Figure heat = figure_of(study, rows, study.figures[1]);
  ASSERT_EQ(heat.curves.size(), 8u);
  EXPECT_EQ(heat.curves[2].name, "B");
  EXPECT_EQ(heat.ticks.size(), 2u);
  EXPECT_EQ(heat.curves[2].points.at(1).x, 1);
}

TEST(Fits, OfTooFewTrialsSaySo) {
  const StudyFile study = fitted_study();
  std::vector<StudyRow> rows = made_rows(study, 0);
  rows.resize(4);
  add_derived(study, rows);
  EXPECT_FALSE(rows[0].measures.contains("cost"));
  EXPECT_TRUE(contains(fits_section(study, rows, ""), "too few trials"));
}

TEST(Fits, RefuseWhatIsNoneAllAtOnce) {
  StudyFile study;
  try {
    apply_study(
        "[[fit]]\nname='x'\nmeasure='m'\nterms=['1 +']\n[[figure]]\nname='f'\ntitle='f'\n"
        "part='p'\nx='a'\ny='m'\ncurves='b'\nkind='cloud'",
        "mine.toml", study);
    FAIL();
  } catch (const ConfigError& error) {
    for (const char* part : {"is missing after '1 +'", "parts is missing", "kind 'cloud' is none"})
      EXPECT_TRUE(contains(error.what(), part)) << error.what();
  }
  study = fitted_study();
  study.fits[0].measure = "nothing";
  study.fits[0].by = "nobody";
  study.figures[1].x = "step_seconds";
  EXPECT_EQ(check_study(study, "mine.toml").size(), 3u);
}

}  // namespace
}  // namespace laconic
