// Ranks that compute on GPUs, each a process: shared GPUs, kills, and what cannot be.
#include <fmt/format.h>

#include "tests/processes/ranks.hpp"

namespace laconic {
namespace {

class GpuRanks : public Ranks {
 protected:
  // The worker knows whether there is a GPU; this program has no libtorch.
  void SetUp() override {
    if (!no_gpu_.empty()) GTEST_SKIP() << no_gpu_;
    const ProcessResult outcome = laconic(train("runs/probe", on_gpu({"--set", "train.steps=1"})));
    if (contains(outcome.err, "there is no GPU to use")) {
      no_gpu_ = "no GPU here: " + outcome.err;
      GTEST_SKIP() << no_gpu_;
    }
    ASSERT_EQ(outcome.exit_code, 0) << to_text(outcome);
  }
  static inline std::string no_gpu_;  // known after the first test
  static Words on_gpu(const Words& more = {}) {
    return Words{"--set", "run.device=cuda", "--set", "network.deadline=20"} + more;
  }
  static Words on_two(const std::string& run, const Words& more = {}) {
    return train(run, on_gpu(Words{"--set", "mesh.dp=2", "--ranks", "2"} + more));
  }
};

TEST_F(GpuRanks, TellWhichGpuTheyHaveAndThatTheyShareIt) {
  const ProcessResult outcome = expect_exit(
      0, on_two("runs/a", {"--set", "run.device=cuda:0", "--set", "network.preflight=true"}));
  EXPECT_TRUE(contains(outcome.out, "gpu: cuda:0 of ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "copies on the GPU ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "2 ranks share it")) << outcome.out;
}

TEST_F(GpuRanks, AgreeWithOneThatHasTheWholeBatch) {
  expect_exit(0, train("runs/one", on_gpu({"--set", "model.dropout=0"})));
  expect_exit(0, on_two("runs/two", {"--set", "model.dropout=0"}));
  const auto one = losses("runs/one"), two = losses("runs/two");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [step, loss] : one) EXPECT_NEAR(two.at(step), loss, 1e-4 * loss) << step;
}

// The same direct sums of short messages, so the same bits.
TEST_F(GpuRanks, TrainOverMpiWhatTheyTrainOverGloo) {
  const std::string mpirun = "/usr/bin/mpirun";
  if (!std::filesystem::exists(mpirun)) GTEST_SKIP() << "no mpirun here";
  const Words in_four_bits = {"--set", "dp.gradient.codec=quantise:bits=4,block=64", "--set",
                              "dp.gradient.feedback=both"};
  expect_exit(0, on_two("runs/gloo", in_four_bits));
  const Words two = {"--set", "mesh.dp=2", "--set", "network.transport=mpi"};
  ProcessSpec mpi = spec(train("runs/mpi", on_gpu(two + in_four_bits)));
  mpi.words = Words{mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2"} + mpi.words;
  const ProcessResult outcome = Process(mpi).wait(120);
  ASSERT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.out, "over mpi")) << to_text(outcome);
  EXPECT_EQ(losses("runs/mpi"), losses("runs/gloo"));
}

TEST_F(GpuRanks, OfATensorGridAgreeWithOneThatHasTheWholeModel) {
  struct Row {
    const char* name;
    Words sets;
    double share;  // that losses may differ by
  };
  const auto in_eight_bits = [](const char* traffic) {
    return Words{"--set", fmt::format("{}.codec=quantise:bits=8", traffic)};
  };
  const Words line = {"--set", "mesh.tp=2", "--set", "tensor.method=1d"},
              sequence = {"--set", "mesh.tp=2", "--set", "tensor.method=1d-sequence"},
              shared = {"--set", "mesh.tp=2,1,1", "--set", "tensor.method=3d"};
  const Words plain = {"--set", "model.dropout=0"};
  expect_exit(0, train("runs/one", on_gpu(plain)));
  const auto one = losses("runs/one");
  for (const Row& row :
       {Row{"line", line, 1e-4}, Row{"sequence", sequence, 1e-4}, Row{"shared", shared, 1e-4},
        Row{"kept", shared + Words{"--set", "tensor.keep=gathered"}, 1e-4},
        Row{"short", line + in_eight_bits("tp.activation") + in_eight_bits("tp.gradient"), 0.02}}) {
    SCOPED_TRACE(row.name);
    const std::string run = fmt::format("runs/{}", row.name);
    expect_exit(0, train(run, on_gpu(plain + row.sets + Words{"--ranks", "2"})));
    const auto grid = losses(run);
    ASSERT_EQ(one.size(), grid.size());
    for (const auto& [step, loss] : one) EXPECT_NEAR(grid.at(step), loss, row.share * loss) << step;
  }
}

TEST_F(GpuRanks, KilledAgainAndAgainEndAsThoseLeftAlone) {
  const Words steps = {"--set", "train.steps=60", "--set", "checkpoint.every=4"};
  expect_exit(0, on_two("runs/undisturbed", steps));
  Process process(spec(on_two("runs/a", steps + Words{"--max-restarts", "5"})));
  for (int life = 0; life < 2; ++life) {
    ASSERT_TRUE(wait_for_step(process, "runs/a", 10 + 20 * life)) << to_text(process.wait());
    kill_rank(process, life);
    ASSERT_TRUE(wait_until(process, [&] {
      return contains(text("process.err"), fmt::format("restart {} of 5", life + 1));
    })) << to_text(process.wait());
  }
  const ProcessResult outcome = process.wait(120);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  expect_same_end("runs/a", "runs/undisturbed", 60);
}

TEST_F(GpuRanks, AGpuThatIsNotThereIsRefused) {
  const ProcessResult outcome = laconic(on_two("runs/a", {"--set", "run.device=cuda:63"}));
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "device = \"cuda:63\", and there ")) << to_text(outcome);
}

TEST_F(GpuRanks, AModelThatDoesNotFitIsRefusedBeforeItIsMade) {
  const ProcessResult outcome =
      laconic(on_two("runs/a", {"--set", "model.width=16384", "--set", "model.layers=300"}));
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "this run needs about ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "on cuda:0 of ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "free there are ")) << to_text(outcome);
}

// The estimate is overridden; then the allocator finds out.
TEST_F(GpuRanks, OutOfMemoryNamesRankGpuStepAndBytes) {
  const ProcessResult outcome = laconic(on_two(
      "runs/a", {"--set", "run.memory=1000000000000000", "--set", "model.width=256", "--set",
                 "model.heads=16", "--set", "model.layers=48", "--set", "model.context=1024",
                 "--set", "train.batch=2048", "--set", "data.valid=", "--set", "train.steps=2"}));
  EXPECT_NE(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "out of memory: ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, ", cuda:")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, ", step 1: ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "Tried to allocate ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, " are free now")) << to_text(outcome);
}

TEST_F(GpuRanks, AModelIsUsedOnTheGpuThatIsNamed) {
  for (const char* device : {"cuda", "cuda:0"})
    expect_exit(0,
                {"generate", "runs/probe", "--prompt", "a", "--tokens", "3", "--device", device});
  expect_exit(0, {"evaluate", "runs/probe", "--data", "data-valid", "--device", "cuda:0"});
  const ProcessResult outcome =
      laconic({"generate", "runs/probe", "--prompt", "a", "--device", "cuda:63"});
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
}

}  // namespace
}  // namespace laconic
