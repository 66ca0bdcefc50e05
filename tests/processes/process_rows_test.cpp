// Embedding tables by rows over real processes: the model of threads; killed and started again, the
// model of a run left alone.
#include <fmt/format.h>

#include <filesystem>

#include "tests/processes/ranks.hpp"

namespace laconic {
namespace {

class RowRanks : public Ranks {
 protected:
  static Words by_rows(const std::string& method) {
    return {"--set", "model.kind=llama",
            "--set", "embedding.rows.method=" + method,
            "--set", "embedding.rows.optimiser=lazy_adam",
            "--set", "embedding.rows.clip=dense",
            "--set", "embedding.rows.split=on"};
  }
};

TEST_F(RowRanks, TrainOverGlooWhatThreadsTrain) {
  for (const char* method : {"alltoall", "allgather", "server"}) {
    Words rows = by_rows(method) + Words{"--set", "dp.gradient.algorithm=direct"};
    if (method == std::string_view("alltoall"))
      rows = rows + Words{"--set", "run.precision=bfloat16"};
    if (method == std::string_view("server"))
      rows = rows + Words{"--set", "embedding.rows.early=true"};
    const std::string name = fmt::format("runs/{}", method);
    expect_exit(0, on_three(name + "-processes", rows));
    expect_exit(0,
                on_three(name + "-threads", rows + Words{"--set", "network.transport=in_process"}));
    expect_same_end(name + "-processes", name + "-threads", 12);
  }
}

TEST_F(RowRanks, ARunKilledAgainAndAgainEndsAsOneLeftAlone) {
  const Words steps =
      by_rows("alltoall") +
      Words{"--set", "train.steps=40", "--set", "checkpoint.every=4", "--set", "train.clip=0"};
  expect_exit(0, on_three("runs/undisturbed", steps));
  // Block by block the next step is under way when a rank goes; the run left alone ends every step.
  for (const std::string update : {"block", "step"}) {
    const std::string name = "runs/" + update;
    Process process(spec(
        on_three(name, steps + Words{"--set", "train.update=" + update, "--max-restarts", "3"})));
    for (int life = 0; life < 2; ++life) {
      ASSERT_TRUE(wait_for_step(process, name, 10 + 12 * life)) << to_text(process.wait());
      kill_rank(process, 1 + life);
      ASSERT_TRUE(wait_until(process, [&] {
        return contains(text("process.err"), fmt::format("restart {} of 3", life + 1));
      })) << to_text(process.wait());
    }
    const ProcessResult outcome = process.wait(60);
    EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
    expect_same_end(name, "runs/undisturbed", 40);
  }
}

// It saves where no checkpoint was due, with decay that is caught up there.
TEST_F(RowRanks, AnInterruptedRunGoesOnAsIfNothingHadHappened) {
  const Words rows = by_rows("alltoall");
  Process process(spec(on_three("runs/a", rows + Words{"--set", "train.steps=1000000", "--set",
                                                       "optimiser.decay_steps=50"})));
  ASSERT_TRUE(wait_for_step(process, "runs/a", 9));
  process.send(SIGINT);
  const ProcessResult outcome = process.wait(30);
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT) << to_text(outcome);
  ASSERT_FALSE(steps_saved("runs/a").empty());
  const std::int64_t end = steps_saved("runs/a").back() + 3;
  const Words steps = rows + Words{"--set", fmt::format("train.steps={}", end), "--set",
                                   "optimiser.decay_steps=50"};
  expect_exit(0, on_three("runs/a", steps + Words{"--resume", "auto"}));
  expect_exit(0, on_three("runs/undisturbed", steps));
  expect_same_end("runs/a", "runs/undisturbed", end);
}

// A rank may have less memory than the tables and their moments take: columns of them, and a
// checkpoint that is written in pieces, fit.
TEST_F(RowRanks, TablesThatNoRankHasRoomForAreTrainedAndSaved) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself reserves more than any limit";
#endif
  expect_exit(0, {"prepare", "--synthetic", "zipf", "--tokens", "4000", "--vocabulary", "400000",
                  "--out", "words"});
  // Two tables of 400,000 x 128 with two moments: 1.2 GB.
  write_text(*this / "large.toml", R"(extends = "preset:embrace"
model = { kind = "lstm", layers = 1, width = 128, hidden = 64, context = 10, projection = "output" }
task = { sampled = 64, negatives = "shared" }
data = { train = "words" }
mesh = { dp = 4 }
train = { steps = 3, batch = 8 }
run = { threads = 1, memory = 1000000000000000 }
network = { preflight = false }
report = { tensorboard = false }
)");
  const auto train_by = [&](const std::string& method) {
    ProcessSpec limited =
        spec({"train", "large.toml", "--ranks", "4", "--set", "run.folder=runs/" + method, "--set",
              "embedding.rows.method=" + method});
    limited.data_bytes = std::uint64_t{1100} << 20;
    return Process(limited).wait(300);
  };
  const ProcessResult cut = train_by("alltoall");
  EXPECT_EQ(cut.exit_code, 0) << to_text(cut);
  EXPECT_EQ(steps_saved("runs/alltoall"), std::vector<std::int64_t>{3});
  EXPECT_GT(
      std::filesystem::file_size(*this / (checkpoint("runs/alltoall", 3) + "/model.safetensors")),
      2 * 400'000 * 128 * 4U);
  const ProcessResult whole = train_by("allgather");
  EXPECT_NE(whole.exit_code, 0) << to_text(whole);
  EXPECT_TRUE(contains(whole.err, "memory")) << to_text(whole);
}

}  // namespace
}  // namespace laconic
