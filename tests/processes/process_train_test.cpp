// `laconic train` alone, again, from a checkpoint, to its end: what a run leaves and what it says.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/processes/json_file.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using TrainedRun = Workplace;

TEST_F(TrainedRun, TheBestCheckpointIsFoundByItsName) {
  prepare();
  const Words train = {"train", "run.toml",
                       "--set", "evaluate.every=2",
                       "--set", "checkpoint.best=true",
                       "--set", "data.valid=data-valid"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_exit(0, with(train, {"--json", "run.json"}));
  const nlohmann::json run = json_of(folder_ / "run.json");
  EXPECT_EQ(run["stopped_early"], false);
  expect_exit(0, {"evaluate", "runs/a/best", "--data", "data-valid", "--json", "best.json"});
  EXPECT_NEAR(json_of(folder_ / "best.json")["loss"].get<double>(),
              run["best_validation_loss"].get<double>(), 1e-4);
  expect_exit(0, {"generate", "runs/a/best", "--prompt", "a", "--tokens", "2"});
  const ProcessResult resumed =
      expect_exit(0, with(train, {"--resume", "best", "--overwrite", "--set", "train.steps=8"}));
  EXPECT_TRUE(contains(resumed.out, fmt::format("step {}\n", run["best_step"].get<int>())));
  EXPECT_TRUE(
      contains(expect_exit(2, {"generate", "runs/best", "--prompt", "a"}).err, "runs/best"));
}

TEST_F(TrainedRun, TheSameSeedGivesTheSameRunAndAnotherThreadNearlyTheSame) {
  prepare();
  for (const char* run : {"a", "b", "größe 日本"})
    expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/" + std::string(run)});
  expect_same_end("runs/b", "runs/a", 6);
  expect_same_end("runs/größe 日本", "runs/a", 6);
  expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/two", "--set", "run.threads=2"});
  const auto one = losses("runs/a"), two = losses("runs/two");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [step, loss] : one) EXPECT_NEAR(loss, two.at(step), 1e-4) << step;
}

TEST_F(TrainedRun, NoStepsStillMakeAModelNewOrFromACheckpoint) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--set", "train.steps=0"});
  EXPECT_EQ(steps_saved("runs/a"), std::vector<std::int64_t>{0});
  expect_exit(0, {"train", "run.toml", "--resume", "auto"});
  expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/b", "--set", "train.steps=0",
                  "--set", "model.start=" + checkpoint("runs/a", 6)});
  EXPECT_EQ(steps_saved("runs/b"), std::vector<std::int64_t>{0});
  EXPECT_EQ(text(checkpoint("runs/b", 0) + "/model.safetensors"),
            text(checkpoint("runs/a", 6) + "/model.safetensors"));
  EXPECT_TRUE(contains(expect_exit(2, {"train", "run.toml", "--set", "run.folder=runs/c", "--set",
                                       "model.start=runs/a"})
                           .err,
                       "runs/a/config.json"));
}

TEST_F(TrainedRun, AFinishedRunHasNothingToDoAndSaysSo) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--json", "first.json"});
  const auto before = snapshot(folder_ / "runs/a/checkpoints");
  const std::string out =
      expect_exit(0, {"train", "run.toml", "--resume", "auto", "--json", "again.json"}).out;
  EXPECT_TRUE(contains(out, "nothing to do: " + checkpoint("runs/a", 6) + " has done 6 steps"))
      << out;
  EXPECT_FALSE(contains(out, "tokens trained on")) << out;
  EXPECT_EQ(snapshot(folder_ / "runs/a/checkpoints"), before);
  EXPECT_EQ(json_of(folder_ / "again.json")["step"], 6);
  const std::string more = expect_exit(0, {"train", "run.toml", "--resume", "auto", "--set",
                                           "train.steps=8", "--json", "more.json"})
                               .out;
  EXPECT_TRUE(contains(more, "tokens trained on")) << more;
  EXPECT_TRUE(contains(more, "of these since step 6")) << more;
  EXPECT_EQ(json_of(folder_ / "more.json")["all_tokens"], 8 * 4 * 16);
  EXPECT_EQ(json_of(folder_ / "more.json")["tokens"], 2 * 4 * 16);
}

TEST_F(TrainedRun, ResumeTakesTheFolderOfARun) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--set", "train.steps=4"});
  for (const char* given : {"runs/a", "runs/a/", "runs/a/checkpoints"}) {
    const std::string out = expect_exit(0, {"train", "run.toml", "--resume", given, "--set",
                                            "run.folder=runs/b", "--overwrite"})
                                .out;
    EXPECT_TRUE(contains(out, "step-00000004, step 4")) << out;
  }
  expect_exit(0, {"train", "run.toml", "--resume", "runs/a"});  // its own
  EXPECT_EQ(text(checkpoint("runs/a", 6) + "/model.safetensors"),
            text(checkpoint("runs/b", 6) + "/model.safetensors"));
  const ProcessResult refused =
      expect_exit(2, {"train", "run.toml", "--resume", "runs/a", "--set", "run.folder=runs/b"});
  EXPECT_TRUE(contains(refused.err, "runs/b already holds step-00000006")) << refused.err;
}

TEST_F(TrainedRun, AWarmUpThatDoesNotFitIsShortenedWithAWarning) {
  prepare();
  const Words sets = {"--set", "optimiser.decay_steps=0", "--set"};
  const auto out = [&](const char* run, const char* warmup) {
    Words words = {"train", "run.toml", "--set", std::string("run.folder=runs/") + run};
    words.insert(words.end(), sets.begin(), sets.end());
    words.push_back(std::string("optimiser.warmup=") + warmup);
    return expect_exit(0, words).out;
  };
  EXPECT_TRUE(contains(out("a", "60"), "warning: optimiser.warmup = 60 does not fit"));
  EXPECT_FALSE(contains(out("b", "6"), "warning"));
  expect_same_end("runs/a", "runs/b", 6);
  EXPECT_FALSE(contains(out("c", "0.5"), "warning"));
  EXPECT_FALSE(contains(out("d", "3"), "warning"));
  expect_same_end("runs/c", "runs/d", 6);
}

TEST_F(TrainedRun, ADatasetSmallerThanOneWindowIsRefusedWithNumbers) {
  write_text(folder_ / "short.txt", "fifteen letters");
  expect_exit(0, {"prepare", "short.txt", "--out", "data"});
  const ProcessResult outcome = expect_exit(2, {"train", "run.toml", "--set", "data.valid="});
  EXPECT_TRUE(contains(outcome.err, "data has 16 tokens, but one sample of 16 tokens needs 17"))
      << outcome.err;
  expect_exit(0, {"train", "run.toml", "--set", "data.valid=", "--set", "model.context=15"});
}

}  // namespace
}  // namespace laconic
