#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/gpu_error.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/gpu_report.hpp"
#include "laconic/train/test_runs.hpp"

namespace laconic {
namespace {

int stop_at_once() {
  return 15;
}

TEST_F(Runs, TheLossFallsAndTheSummaryTellsIt) {
  RunConfig c = config("a");
  c.train.steps = 40;
  const TrainSummary summary = run(c);
  EXPECT_EQ(summary.step, 40);
  EXPECT_EQ(summary.tokens, 40 * 4 * 24);
  const auto loss = losses("a");
  EXPECT_EQ(loss.size(), 40u);
  EXPECT_NEAR(loss.at(1), std::log(257.0), 0.2);  // bytes and an end: nothing is known at first
  EXPECT_LT(loss.at(40), 3.5);
  ASSERT_TRUE(summary.evaluation);
  EXPECT_LT(summary.evaluation->loss, 3.5);
  EXPECT_NEAR(*summary.evaluation->bits_per_byte, summary.evaluation->loss / std::log(2.0), 0.05);
  const auto json = nlohmann::json::parse(to_json(summary, c));
  EXPECT_EQ(json["step"], 40);
  EXPECT_EQ(json["validation_loss"], summary.evaluation->loss);
}

TEST_F(Runs, ARunThatCannotFitIsRefusedWithTheNumbersBeforeAnythingIsWritten) {
  const RunConfig c = config("a");
  try {
    train({.config = c, .memory_bytes = 1000000});
    FAIL() << "it trained in 1 MB";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part : {"this run needs about ", " for 1 rank: parameters 44.4 kB, ",
                             "optimiser 88.7 kB", "program ", "the machine has 1.0 MB"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_FALSE(std::filesystem::exists(c.run.folder));
}

TEST_F(Runs, TheLogAndTheSummaryTellMfuAndTheEstimate) {
  const RunConfig c = config("a");
  const TrainSummary summary = run(c);
  std::ifstream file(folder_ / "a/log.jsonl");
  std::string line;
  std::getline(file, line);
  const double mfu = nlohmann::json::parse(line)["mfu"];
  EXPECT_GT(mfu, 0);
  const auto json = nlohmann::json::parse(to_json(summary, c));
  EXPECT_NEAR(
      json["mfu"].get<double>(),
      summary.estimate.step_flops * 7 / (summary.estimate.flops_per_second * summary.train_seconds),
      1e-12);
  EXPECT_EQ(json["estimate"]["ranks"].size(), 1u);
  EXPECT_EQ(json["estimate"]["ranks"][0]["parameters"], 4.0 * summary.parameters);
  EXPECT_GT(json["estimate"]["step_seconds"].get<double>(), 0);
}

TEST_F(Runs, AResumedRunEqualsOneThatWasNeverStoppedBitForBit) {
  for (const RunPrecision precision :
       {RunPrecision::float32, RunPrecision::bfloat16, RunPrecision::float64}) {
    for (const bool recompute : {false, true}) {
      const std::string whole = fmt::format("whole-{}-{}", name_in(kRunPrecisionNames, precision),
                                            recompute),
                        parts = "parts-" + whole;
      RunConfig c = config(whole);
      c.run.precision = precision;
      c.model.recompute = recompute;
      const TrainSummary straight = run(c);
      c.run.folder = folder_ / parts;
      c.checkpoint.every = 1;
      for (int stop = 0; stop < 3; ++stop) {  // interrupted after each of the first three steps
        const TrainSummary part =
            train({.config = c, .start = {.resume = "auto"}, .stop_signal = stop_at_once});
        EXPECT_EQ(part.signal, 15);
        EXPECT_EQ(part.step, stop + 1);
      }
      const TrainSummary rest = run(c, "auto");
      EXPECT_EQ(rest.first_step, 3);
      EXPECT_EQ(losses(parts), losses(whole));
      EXPECT_EQ(rest.evaluation->loss, straight.evaluation->loss);
      expect_equal_files(rest.checkpoint, straight.checkpoint);
    }
  }
}

TEST_F(Runs, RecomputationAndReportingDoNotChangeTheRun) {
  RunConfig c = config("a");
  const TrainSummary plain = run(c);
  c.run.folder = folder_ / "b";
  c.model.recompute = true;
  c.report.trace = c.report.tensorboard = true;
  c.evaluate.every = 2;
  const TrainSummary other = run(c);
  expect_equal_files(other.checkpoint, plain.checkpoint);
  EXPECT_NO_THROW(nlohmann::json::parse(bytes(folder_ / "b/trace.json")));
}

TEST_F(Runs, MicrobatchesOfAnySizeTrainTheSameModel) {
  RunConfig c = config("a");
  c.run.precision = RunPrecision::float64;
  c.train.microbatch = 0;
  run(c);
  const auto expected = losses("a");
  for (const std::int64_t micro : {1, 2, 4}) {
    c.run.folder = folder_ / fmt::format("micro-{}", micro);
    c.train.microbatch = micro;
    run(c);
    const auto found = losses(fmt::format("micro-{}", micro));
    for (const auto& [step, loss] : expected)
      EXPECT_NEAR(found.at(step), loss, 1e-12) << micro << ", step " << step;
  }
}

TEST_F(Runs, AnExistingRunIsNotOverwrittenUnasked) {
  const RunConfig c = config("a");
  run(c);
  EXPECT_THROW(run(c), ConfigError);
  EXPECT_EQ(losses("a").size(), 7u);
  EXPECT_EQ(train({.config = c, .start = {.overwrite = true}}).first_step, 0);
  EXPECT_EQ(losses("a").size(), 7u);
}

TEST_F(Runs, ResumingAsAnotherModelIsRefusedWithEveryReason) {
  RunConfig c = config("a");
  run(c);
  c.model.layers = 3;
  c.model.width = 32;
  try {
    run(c, "auto");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers = 2, the run asks for 3"),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("model.width = 16, the run asks for 32"),
              std::string::npos);
  }
  c = config("a");
  c.run.precision = RunPrecision::float64;
  EXPECT_THROW(run(c, "auto"), FileError);
}

TEST_F(Runs, ADamagedCheckpointIsPassedOverAndTheOneBeforeContinues) {
  RunConfig c = config("a");
  c.checkpoint.every = 1;
  const TrainSummary straight = run(c);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(checkpoints_folder(c)), {}),
            3);  // keep
  {
    std::fstream file(straight.checkpoint + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x55');
  }
  const TrainSummary again = run(c, "auto");
  EXPECT_EQ(again.first_step, 6);
  EXPECT_EQ(losses("a").size(), 7u);
  EXPECT_NO_THROW(verify_checkpoint(again.checkpoint));
}

TEST_F(Runs, ALossThatIsNotFiniteSavesWhatWasGoodAndStops) {
  RunConfig c = config("a");
  c.optimiser.lr = 1e30;
  c.optimiser.warmup = 0;
  try {
    run(c);
    FAIL() << "no complaint";
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("not finite"), std::string::npos) << what;
    EXPECT_NE(what.find("checkpoints/step-0000000"), std::string::npos) << what;
  }
  std::vector<std::string> warnings;
  EXPECT_NE(find_latest_checkpoint(checkpoints_folder(c), warnings), "");
}

TEST_F(Runs, StepsThatAreNotFiniteCanBeSkippedButNotForEver) {
  RunConfig c = config("b");
  c.optimiser.lr = 1e30;
  c.optimiser.warmup = 0;
  c.train.non_finite = NonFinite::skip;
  const TrainSummary summary = run(c);
  EXPECT_GT(summary.skipped, 0);
  EXPECT_EQ(summary.step, 7);
  // The samples of a skipped step are passed over.
  EXPECT_EQ(nlohmann::json::parse(bytes(summary.checkpoint + "/state.json"))["position"], 7 * 4);
  c.train.steps = 100;  // the count of skips in a row goes on where it was
  EXPECT_THROW(run(c, "auto"), std::runtime_error);
  // Step 1 was good, so step 11 would be the tenth that is not.
  std::vector<std::string> warnings;
  const std::string latest = find_latest_checkpoint(checkpoints_folder(c), warnings);
  EXPECT_EQ(std::filesystem::path(latest).filename(), "step-00000010");
}

TEST_F(Runs, WhenEveryCheckpointIsDamagedNothingBeginsAnewByItself) {
  RunConfig c = config("a");
  const TrainSummary first = run(c);
  std::filesystem::resize_file(first.checkpoint + "/model.safetensors", 100);
  EXPECT_THROW(run(c, "auto"), FileError);
  EXPECT_EQ(losses("a").size(), 7u);
}

TEST_F(Runs, ACheckpointOfAnotherRunDoesNotPushOutOnesOwn) {
  const TrainSummary other = run(config("other"));
  RunConfig c = config("mine");
  c.run.seed = 9;
  c.train.steps = 2;
  const TrainSummary mine = run(c);
  c.train.steps = 9;
  EXPECT_THROW(run(c, other.checkpoint), ConfigError);
  EXPECT_NO_THROW(verify_checkpoint(mine.checkpoint));
}

TEST_F(Runs, ResumingAFinishedRunAddsNothingToItsLog) {
  const RunConfig c = config("a");
  run(c);
  const std::string before = bytes(folder_ / "a/log.jsonl");
  run(c, "auto");
  EXPECT_EQ(bytes(folder_ / "a/log.jsonl"), before);
}

TEST_F(Runs, TheLastCheckpointCanBeLeftOut) {
  RunConfig c = config("measured");
  c.checkpoint.at_end = false;
  EXPECT_EQ(run(c).checkpoint, "");
  c = config("saved-on-the-way");
  c.checkpoint.at_end = false;
  c.checkpoint.every = 5;
  EXPECT_TRUE(run(c).checkpoint.ends_with("step-00000005"));
}

TEST_F(Runs, AMissingDatasetIsTheFirstThingSaid) {
  RunConfig c = config("a");
  c.data.train = folder_ / "nowhere";
  try {
    run(c);
    FAIL() << "accepted";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere.idx: does not exist; make it with"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Runs, TheCheckpointNamesTheTokenThatEndsADocument) {
  RunConfig c = config("a");
  c.model.vocabulary = 300;  // more than the 257 of bytes
  EXPECT_EQ(read_folder_facts(run(c).checkpoint).end_of_text, 256);
}

TEST_F(Runs, DropoutBySampleIsTheSameInEveryEpoch) {
  RunConfig c = config("by-step");
  c.data.train = four_samples();
  c.data.shuffle = false;
  c.optimiser.lr = c.optimiser.min_lr = 0;  // one model, one batch: only masks can differ
  run(c);
  const auto by_step = losses("by-step");
  c.run.folder = folder_ / "by-sample";
  c.model.dropout_by_sample = true;
  run(c);
  const auto by_sample = losses("by-sample");
  for (std::int64_t step = 2; step <= 7; ++step) {
    EXPECT_NE(by_step.at(step), by_step.at(1)) << step;
    EXPECT_EQ(by_sample.at(step), by_sample.at(1)) << step;
  }
}

TEST_F(Runs, ShardsDecideTheOrderAndMustGoWithTheData) {
  RunConfig c = config("whole");
  run(c);
  c.run.folder = folder_ / "shards";
  c.data.shards = 2;
  run(c);
  EXPECT_NE(losses("shards"), losses("whole"));

  c.train.batch = 8;  // the run stands at sample 28
  c.train.steps = 9;
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>([&] { run(c, "auto"); }),
                          "at sample 28, which is no whole number of batches of 8");
  c.run.folder = folder_ / "few";
  c.data.train = four_samples();
  c.data.shards = 8;
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>([&] { run(c); }),
                          "shards = 8, but there are only 4 samples");
}

TEST_F(Runs, StartsFromAHuggingFaceFolder) {
  RunConfig c = config("a");
  const TrainSummary first = run(c);
  RunConfig d = config("b");
  d.model.start = first.checkpoint;
  d.model.layers = 9;  // the folder's sizes count
  const TrainSummary second = run(d);
  EXPECT_EQ(second.first_step, 0);
  EXPECT_LT(losses("b").at(1), losses("a").at(1));
}

TEST(GpuFailure, NamesTheGpuAndTheStepWhoeverFoundIt) {
  World world;
  world.set_activity("step 7");
  const auto told = [&](const auto& error) -> std::string {
    try {
      try {
        throw error;
      } catch (...) {
        rethrow_gpu_failure(2, world);
      }
    } catch (const std::exception& found) {
      return found.what();
    }
  };
  const std::string failed = told(GpuError("CUDA refused work for a message: an illegal address"));
  for (const char* part : {"cuda:2", "step 7", "an illegal address", "--resume auto"})
    EXPECT_NE(failed.find(part), std::string::npos) << failed;
  const std::string full = told(GpuError("Tried to get 77 bytes for messages.", true));
  for (const char* part : {"cuda:2", "step 7", "out of memory", "77 bytes", "train.microbatch"})
    EXPECT_NE(full.find(part), std::string::npos) << full;
  EXPECT_EQ(told(std::runtime_error("something else")), "something else");
}

}  // namespace
}  // namespace laconic
