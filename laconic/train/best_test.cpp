// The best checkpoint and early stopping, in whole runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "laconic/base/error.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/train/loop.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

// Trains on one letter and is validated on another: at first the loss falls, since other letters
// are ruled out together with the rest; then it only rises.
class Best : public testing::Test {
 protected:
  Best() {
    std::string text, other;
    for (int i = 0; i < 120; ++i) text += "one text that is learned by heart. ";
    for (int i = 0; i < 12; ++i) other += "and some text of another kind that is not, ";
    std::ofstream(folder_ / "text.txt") << text;
    std::ofstream(folder_ / "other.txt") << other;
    prepare({.inputs = {folder_ / "text.txt"}, .output = folder_ / "data"});
    prepare({.inputs = {folder_ / "other.txt"}, .output = folder_ / "other"});
  }

  RunConfig config(const std::string& name) {
    RunConfig c;
    c.run.folder = folder_ / name;
    c.model = {.layers = 1, .width = 16, .heads = 2, .context = 24};
    c.data.train = folder_ / "data";
    c.data.valid = folder_ / "other";
    c.train.steps = 60;
    c.train.batch = 4;
    c.optimiser.lr = 2e-2;
    c.optimiser.schedule = LearningRateShape::constant;
    c.optimiser.warmup = 2;
    c.evaluate.every = 4;
    c.checkpoint.best = true;
    c.checkpoint.keep = 1;
    c.report.tensorboard = false;
    return c;
  }
  static std::string best(const RunConfig& c) {
    return fs::path(best_checkpoint(checkpoints_folder(c))).filename();
  }
  static std::vector<std::string> saved(const RunConfig& c) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints_folder(c)))
      if (!entry.is_symlink()) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  const TemporaryFolder folder_;
};

TEST_F(Best, TheBestCheckpointStaysAndIsFound) {
  const RunConfig c = config("a");
  const TrainSummary summary = train({.config = c});
  ASSERT_TRUE(summary.validation.best_loss);
  const std::int64_t step = summary.validation.best_step;
  ASSERT_GT(step, 0);
  ASSERT_LT(step, 56) << "the loss should rise again";
  const std::string name = fmt::format("step-{:08}", step);
  EXPECT_EQ(best(c), name);
  EXPECT_EQ(saved(c), (std::vector<std::string>{name, "step-00000060"}))
      << "keep = 1, and the best";
  EXPECT_LT(*summary.validation.best_loss, summary.evaluation->loss);

  // Its model has the loss that made it the best.
  RunConfig again = c;
  again.run.folder = folder_ / "again";
  again.model.start = best_checkpoint(checkpoints_folder(c));
  again.train.steps = 0;
  EXPECT_EQ(train({.config = again}).evaluation->loss, *summary.validation.best_loss);
}

TEST_F(Best, ARunCanGoOnFromTheBestOnce) {
  const RunConfig c = config("a");
  const TrainSummary whole = train({.config = c});
  EXPECT_THROW(train({.config = c, .start = {.resume = "best"}}), ConfigError)
      << "a later checkpoint would be lost";
  const TrainSummary again = train({.config = c, .start = {.resume = "best", .overwrite = true}});
  EXPECT_EQ(again.first_step, whole.validation.best_step);
  EXPECT_EQ(again.validation, whole.validation);
  EXPECT_EQ(again.loss, whole.loss);
  RunConfig none = config("none");
  EXPECT_THROW(train({.config = none, .start = {.resume = "best"}}), FileError);
}

TEST_F(Best, RunsStopEarlyAndInterruptionsDoNotMatter) {
  RunConfig c = config("whole");
  c.evaluate.patience = 3;
  c.evaluate.min_improvement = 0.01;
  const TrainSummary whole = train({.config = c});
  EXPECT_TRUE(whole.is_stopped_early);
  ASSERT_LT(whole.step, 60);
  EXPECT_EQ(whole.validation.stale, 3);

  // Interrupted after every step.
  RunConfig parts = c;
  parts.run.folder = folder_ / "parts";
  TrainSummary last;
  for (int i = 0; i < 200; ++i) {
    last = train({.config = parts, .start = {.resume = "auto"}, .stop_signal = [] { return 15; }});
    if (last.signal == 0) break;
  }
  EXPECT_TRUE(last.is_stopped_early);
  EXPECT_EQ(last.step, whole.step);
  EXPECT_EQ(last.validation, whole.validation);
  EXPECT_EQ(best(parts), best(c));
  // And once more: there is nothing left to do.
  const TrainSummary none = train({.config = parts, .start = {.resume = "auto"}});
  EXPECT_TRUE(none.is_stopped_early);
  EXPECT_EQ(none.first_step, none.step);
  // More patience goes on.
  parts.evaluate.patience = 4;
  EXPECT_GT(train({.config = parts, .start = {.resume = "auto"}}).step, whole.step);
}

}  // namespace
}  // namespace laconic
