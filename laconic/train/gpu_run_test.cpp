// Whole runs on a GPU: they follow the CPU's, and go on after a stop as if there had been none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "laconic/config/read.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/tensor/test_gpu.hpp"
#include "laconic/train/run_hooks.hpp"

namespace laconic {
namespace {

class GpuRuns : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += fmt::format("Line {} of a text that repeats itself. ", i % 37);
    std::ofstream(folder_ / "text.txt") << text;
    prepare(
        {.inputs = {folder_ / "text.txt"}, .output = folder_ / "data", .validation_share = 0.1});
  }

  RunConfig config(const std::string& name, const std::vector<std::string>& settings) {
    RunConfig c;
    c.run.folder = folder_ / name;
    c.model.layers = 2;
    c.model.width = 64;
    c.model.heads = 2;
    c.model.context = 32;
    c.data.train = folder_ / "data";
    c.data.valid = folder_ / "data-valid";
    c.train.steps = 12;
    c.train.batch = 4;
    c.train.microbatch = 2;
    c.optimiser.lr = 1e-3;
    c.optimiser.decay_steps = 12;
    c.report.tensorboard = false;
    for (const std::string& setting : settings) EXPECT_TRUE(apply_set(setting, c).empty());
    return c;
  }

  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
};

TEST_F(GpuRuns, FollowTheCpu) {
  const TrainSummary cpu = train({.config = config("cpu", {})});
  const TrainSummary gpu = train({.config = config("gpu", {"run.device=cuda"})});
  EXPECT_NEAR(gpu.loss, cpu.loss, 1e-4 * cpu.loss);
  EXPECT_NEAR(gpu.evaluation->loss, cpu.evaluation->loss, 1e-4 * cpu.evaluation->loss);
  const TrainSummary rounded =
      train({.config = config("short", {"run.device=cuda", "run.precision=bfloat16"})});
  EXPECT_NEAR(rounded.loss, cpu.loss, 0.01 * cpu.loss);
}

// A context that is no multiple of 8 has been too much for a recorded step with dropout.
TEST_F(GpuRuns, OfAnyContextGoOnAsIfNeverStopped) {
  for (const char* precision : {"float32", "bfloat16", "float64"}) {
    SCOPED_TRACE(precision);
    const std::vector<std::string> settings = {"run.device=cuda",
                                               fmt::format("run.precision={}", precision),
                                               "model.dropout=0.1", "model.context=100"};
    const TrainSummary whole =
        train({.config = config(fmt::format("odd-{}", precision), settings)});
    RunConfig c = config(fmt::format("odd-parts-{}", precision), settings);
    c.train.steps = 7;
    train({.config = c});
    c.train.steps = 12;
    EXPECT_EQ(train({.config = c, .start = {.resume = "auto"}}).loss, whole.loss);
  }
}

// Later steps of a run are repetitions of a recorded one; a resumed run records its own.
TEST_F(GpuRuns, GoOnAsIfNeverStopped) {
  for (const char* precision : {"float32", "tf32", "bfloat16"})
    for (const char* dropout : {"0.0", "0.1"}) {
      SCOPED_TRACE(fmt::format("{}, dropout {}", precision, dropout));
      const std::vector<std::string> settings = {"run.device=cuda",
                                                 fmt::format("run.precision={}", precision),
                                                 fmt::format("model.dropout={}", dropout)};
      const std::string name = fmt::format("{}-{}", precision, dropout);
      const TrainSummary whole = train({.config = config("whole-" + name, settings)});
      RunConfig c = config("parts-" + name, settings);
      c.train.steps = 5;
      train({.config = c});
      c.train.steps = 12;
      const TrainSummary rest = train({.config = c, .start = {.resume = "auto"}});
      EXPECT_EQ(rest.loss, whole.loss);
      for (const char* file : {"/model.safetensors", "/optimiser.safetensors"})
        EXPECT_TRUE(bytes(rest.checkpoint + file) == bytes(whole.checkpoint + file)) << file;
    }
}

// Steps are heard of when the next one has been asked for, which then must not have changed
// anything.
TEST_F(GpuRuns, AStepThatIsNotFiniteLeavesNoTrace) {
  for (const char* precision : {"float32", "bfloat16"}) {
    SCOPED_TRACE(precision);
    const std::vector<std::string> settings = {
        "run.device=cuda",       fmt::format("run.precision={}", precision),
        "train.non_finite=skip", "train.clip=0.5",
        "checkpoint.every=1",    "checkpoint.keep=0"};
    RunConfig c = config(fmt::format("skipped-{}", precision), settings);
    const auto at = [&](int step) {
      return fmt::format("{}/checkpoints/step-{:08}", c.run.folder, step);
    };
    EXPECT_EQ(train({.config = c}, {.spoiled = {6, 7}}).skipped, 2);
    for (const char* file : {"/model.safetensors", "/optimiser.safetensors"}) {
      EXPECT_TRUE(bytes(at(8) + file) == bytes(at(6) + file)) << file;
      EXPECT_FALSE(bytes(at(9) + file) == bytes(at(8) + file)) << file;
    }
    // Without a checkpoint nobody waits anywhere.
    c.checkpoint.every = 0;
    const std::string watched = at(12);
    c.run.folder = folder_ / fmt::format("unwatched-{}", precision);
    EXPECT_EQ(train({.config = c}, {.spoiled = {6, 7}}).skipped, 2);
    for (const char* file : {"/model.safetensors", "/optimiser.safetensors"})
      EXPECT_TRUE(bytes(at(12) + file) == bytes(watched + file)) << file;
  }
}

}  // namespace
}  // namespace laconic
