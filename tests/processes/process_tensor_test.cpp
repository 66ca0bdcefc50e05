// Tensor grids whose ranks are processes: what they train, how they end and go on, what they
// refuse.
#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/test_effort.hpp"
#include "tests/processes/tensor_ranks.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

// Threads were compared with one process (tests/equivalence), so processes are too.
TEST_F(TensorProcesses, TrainOverGlooWhatThreadsTrain) {
  for (const Sets& grid : some_of(kGrids, 2)) {
    const std::string name = fmt::format("runs/{}", grid.size());
    const Sets sets = grid + kShortMessages;
    expect_exit(0, train(name + "-processes", sets));
    expect_exit(0, train(name + "-threads", sets + Sets{"network.transport=in_process"}));
    expect_same_end(name + "-processes", name + "-threads", 8);
  }
}

TEST_F(TensorProcesses, ARankThatIsKilledInsideAStepCostsNothingButTime) {
  expect_only_time_lost("runs/a", kGrids[0] + kShortMessages, "tp.gradient");
}

TEST_F(TensorProcesses, AMessageThatNeverComesIsNamed) {
  const ProcessResult outcome = laconic(
      train("runs/a", kGrids[0] + Sets{"network.faults=drop:rank=0,traffic=tp.activation,at=5",
                                       "network.deadline=2"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_TRUE(contains(verdict.substr(0, verdict.find('\n')), "tp.activation")) << verdict;
}

TEST_F(TensorProcesses, WhatCannotBeIsRefusedWithAllReasonsBeforeTheyStart) {
  struct Row {
    Sets sets;
    std::vector<std::string> reasons;
  };
  for (const Row& row : std::vector<Row>{
           {{"mesh.tp=3"}, {"tp = 3 is no grid of tensor.method = \"3d\""}},
           {{"mesh.tp=3", "tensor.method=1d"}, {"heads = 4, which tp1 = 3 does not divide"}},
           {{"mesh.tp=1,8,1", "train.microbatch=4", "tp.gradient.layers=9",
             "tp.weight.codec=auto_encoder:code=4"},
            {"heads = 4, which tp1 = 8 does not divide", "a microbatch has 4 samples",
             "tp.gradient.layers", "tp.weight.codec", "that can: "}},
           {{"mesh.tp=2,2,1", "optimiser.kind=muon"}, {"muon"}}}) {
    const ProcessResult outcome = expect_exit(2, train("runs/refused", row.sets));
    for (const std::string& reason : row.reasons)
      EXPECT_TRUE(contains(outcome.err, reason)) << reason << " in\n" << to_text(outcome);
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(fs::exists(folder_ / "runs/refused"));
  }
  const ProcessResult outcome =
      expect_exit(2, train("runs/refused", kGrids[0]) + Words{"--ranks", "3"});
  EXPECT_TRUE(contains(outcome.err, "--ranks says 3")) << to_text(outcome);
}

}  // namespace
}  // namespace laconic
