#include "laconic/study/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

// Steps of equal length whose loss falls from 6 by `fall` each.
ComparedRun even_run(const std::string& folder, int steps, double seconds, double fall) {
  ComparedRun run{.folder = folder, .config = {}, .log = {}};
  for (int step = 1; step <= steps; ++step)
    run.log.steps.push_back({.step = step,
                             .seconds = seconds,
                             .loss = 6 - fall * step,
                             .wire_bytes = 1e6 / seconds,
                             .exposed_seconds = seconds / 4});
  run.log.tokens_per_step = 2048;
  return run;
}

TEST(Comparison, AnswersAtAStepAfterATimeAndByALoss) {
  const Comparison c =
      compare_runs({even_run("runs/slow", 10, 4, 0.1), even_run("runs/quick", 100, 0.5, 0.1)});
  EXPECT_EQ(c.step, 10);
  EXPECT_DOUBLE_EQ(c.seconds, 40);
  // A loss is the mean of five steps: of 6 to 10 it is that of step 8.
  EXPECT_NEAR(c.loss, 6 - 0.8, 1e-12);
  EXPECT_NEAR(c.runs[0].loss_at_step, 5.2, 1e-12);
  EXPECT_NEAR(c.runs[1].loss_at_step, 5.2, 1e-12);
  EXPECT_NEAR(c.runs[1].loss_at_seconds, 6 - 0.1 * 78, 1e-12);
  EXPECT_DOUBLE_EQ(c.runs[0].seconds_to_loss.value(), 40);
  EXPECT_DOUBLE_EQ(c.runs[1].seconds_to_loss.value(), 5);
  EXPECT_DOUBLE_EQ(c.runs[0].tokens_per_second, 512);
  EXPECT_DOUBLE_EQ(c.runs[1].tokens_per_second, 4096);
  EXPECT_DOUBLE_EQ(c.runs[1].exposed_share, 0.25);
  EXPECT_TRUE(c.notes.empty());
}

TEST(Comparison, TheTableHasFactorsOfTheFirstRun) {
  const std::string text = to_text(
      compare_runs({even_run("runs/slow", 10, 4, 0.1), even_run("runs/quick", 100, 0.5, 0.1)}));
  for (const char* part :
       {"slow", "quick", "4,096 (8.0x)", "5.0 s (8.0x)", "250.0 kB", "2.0 MB (0.1x)",
        "loss after 10 steps", "loss after 40.0 s", "time to a loss of 5.2000", "25 %"})
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
}

TEST(Comparison, AMeshIsNamedWithItsGrid) {
  ComparedRun cube = even_run("a", 10, 1, 0.1), all = even_run("b", 10, 1, 0.1);
  cube.config.mesh.tp = "8";
  all.config.mesh = {.pp = 2, .dp = 3, .tp = "1,2,2"};
  const Comparison c = compare_runs({even_run("c", 10, 1, 0.1), cube, all});
  EXPECT_EQ(c.runs[0].mesh, "1 rank");
  EXPECT_EQ(c.runs[1].mesh, "tp 2x2x2");
  EXPECT_EQ(c.runs[2].mesh, "pp 2 x dp 3 x tp 1x2x2");
}

TEST(Comparison, StepsThatTheLogSkipsLastAsLongAsTheNext) {
  ComparedRun sparse = even_run("b", 100, 0.5, 0.1);
  std::erase_if(sparse.log.steps, [](const StepRow& row) { return row.step % 10 != 0; });
  const Comparison c = compare_runs({even_run("a", 100, 0.5, 0.1), sparse});
  EXPECT_DOUBLE_EQ(c.runs[1].seconds, 50);
  EXPECT_FALSE(c.runs[1].has_every_step);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("b: the log skips steps"), std::string::npos);
}

TEST(Comparison, LossesThatAreNotFiniteTakeTimeAndAreNoPoints) {
  ComparedRun run = even_run("b", 20, 1, 0.1);
  run.log.steps[9].loss = std::numeric_limits<double>::quiet_NaN();
  const Comparison c = compare_runs({even_run("a", 20, 1, 0.1), run});
  EXPECT_EQ(c.runs[1].by_seconds.points.size(), 19u);
  EXPECT_DOUBLE_EQ(c.runs[1].seconds, 20);
  EXPECT_TRUE(std::isfinite(c.runs[1].loss_at_step));
}

TEST(Comparison, ValidationsAreComparedAtTheLastCommonStep) {
  ComparedRun a = even_run("a", 20, 1, 0.1), b = even_run("b", 40, 1, 0.1);
  a.log.validations = {{10, 5.5}, {20, 5.0}};
  b.log.validations = {{20, 5.1}, {40, 4.0}};
  const Comparison c = compare_runs({a, b});
  EXPECT_EQ(c.validation_step, 20);
  EXPECT_EQ(c.runs[0].validation_loss.value(), 5.0);
  EXPECT_EQ(c.runs[1].validation_loss.value(), 5.1);
  b.log.validations = {{40, 4.0}};
  EXPECT_EQ(compare_runs({a, b}).validation_step, 0);
}

TEST(Comparison, SaysWhatIsConfiguredDifferently) {
  ComparedRun a = even_run("x/run", 5, 1, 0.1), b = even_run("y/run", 5, 1, 0.1);
  b.config.run.folder = "elsewhere";
  b.config.report.every = 7;
  b.config.dp_gradient.codec = "sign";
  b.config.data.train = "other";
  const Comparison c = compare_runs({a, b});
  EXPECT_EQ(c.runs[0].name, "x/run");  // both are called run
  ASSERT_EQ(c.runs[1].differences.size(), 2u);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("losses are not of the same samples"), std::string::npos);
  EXPECT_NE(to_text(c).find("y/run differs from x/run:\n  data.train"), std::string::npos)
      << to_text(c);
}

TEST(Comparison, AFigureHasACurveForEachRun) {
  const Comparison c = compare_runs({even_run("a", 10, 4, 0.1), even_run("b", 20, 0.5, 0.1)});
  const Figure seconds = figure_of(c, false), steps = figure_of(c, true);
  ASSERT_EQ(seconds.curves.size(), 2u);
  EXPECT_DOUBLE_EQ(seconds.curves[0].points.back().x, 40);
  EXPECT_DOUBLE_EQ(steps.curves[1].points.back().x, 20);
  EXPECT_EQ(steps.curves[1].name, "b");
}

class ComparedFolder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string refusal() {
    try {
      read_compared_run(folder_ / "");
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(ComparedFolder, IsReadAsTheRunLeftIt) {
  write("config.toml", to_toml(RunConfig{}, true));
  write("log.jsonl",
        "{\"step\":1,\"loss\":6.5,\"seconds\":0.5,\"tokens_per_second\":2000,\"wire_bytes\":7}\n"
        "{\"step\":1,\"validation_loss\":6.25}\n"
        "{\"step\":2,\"note\":\"bypass: whole\"}\n"
        "{\"step\":2,\"loss\":null,\"seconds\":0.5,\"tokens_per_second\":2000}\n"
        "{\"step\":3,\"lo");  // torn by a kill
  const ComparedRun run = read_compared_run(folder_ / "");
  ASSERT_EQ(run.log.steps.size(), 2u);
  EXPECT_EQ(run.log.steps[0].wire_bytes, 7);
  EXPECT_TRUE(std::isnan(run.log.steps[1].loss));
  EXPECT_EQ(run.log.tokens_per_step, 1000);
  ASSERT_EQ(run.log.validations.size(), 1u);
  EXPECT_EQ(run.log.notes, std::vector<std::string>{"bypass: whole"});
}

// run.precision was called run.dtype once, and a run keeps every key.
TEST_F(ComparedFolder, OfAnOlderRunSaysTheSame) {
  std::string config = to_toml(RunConfig{.run = {.precision = RunPrecision::float64}}, true);
  const std::string now = "precision = ", before = "dtype = ";
  ASSERT_NE(config.find("\n" + now), std::string::npos);
  config.replace(config.find("\n" + now) + 1, now.size(), before);
  write("config.toml", config);
  write("log.jsonl", "{\"step\":1,\"loss\":6.5,\"seconds\":0.5}\n");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(read_compared_run(folder_ / "").config.run.precision, RunPrecision::float64);
}

TEST_F(ComparedFolder, IsRefusedWithTheReason) {
  EXPECT_NE(refusal().find("has no config.toml"), std::string::npos) << refusal();
  write("config.toml", "");
  EXPECT_NE(refusal().find("has no log.jsonl (report.jsonl may have been false)"),
            std::string::npos);
  write("log.jsonl", "{\"step\":1,\"loss\":null}\n");
  EXPECT_NE(refusal().find("no step with a finite loss"), std::string::npos);
  write("log.jsonl", "{\"step\":1,\"loss\":\"six\"}\n");
  EXPECT_NE(refusal().find("line 1"), std::string::npos) << refusal();
  write("config.toml", "[model]\nlayerz = 3\n");
  EXPECT_NE(refusal().find("layerz"), std::string::npos);
  EXPECT_THROW(read_compared_run(folder_ / "absent"), ConfigError);
}

}  // namespace
}  // namespace laconic
