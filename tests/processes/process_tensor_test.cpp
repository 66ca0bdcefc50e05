// Tensor grids whose ranks are processes: what they train, how they end and go on, what they
// refuse.
#include <fmt/format.h>

#include <filesystem>

#include "tests/processes/tensor_ranks.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

const Sets kShortMessages = {"tp.activation.codec=quantise:bits=8",
                             "tp.gradient.codec=quantise:bits=8,rounding=stochastic,grid=ends",
                             "tp.weight.codec=quantise:bits=8",
                             "tp.weight.gradient=quantise:bits=4", "tp.weight.feedback=true"};
// Of four ranks each. The first gathers weights, and so has residuals.
const std::vector<Sets> kGrids = {{"mesh.tp=2,2,1"}, {"mesh.tp=4", "tensor.method=1d"}};

// Messages of a class that a rank of four sent in all, from the last table of a run.
int sent_by_a_rank(const std::string& out, const std::string& traffic) {
  std::string digits;
  const std::size_t row = out.rfind("\n" + traffic);
  if (row == std::string::npos) return 0;
  for (std::size_t i = out.find_first_not_of(' ', row + 1 + traffic.size());
       i < out.size() && out[i] != ' '; ++i)
    if (out[i] != ',') digits += out[i];
  return std::stoi(digits) / 4;
}

// Threads were compared with one process (tests/equivalence), so processes are too.
TEST_F(TensorProcesses, TrainOverGlooWhatThreadsTrain) {
  for (std::size_t g = 0; g < kGrids.size(); ++g) {
    const std::string name = fmt::format("runs/{}", g);
    const Sets sets = kGrids[g] + kShortMessages;
    expect_exit(0, train(name + "-processes", sets));
    expect_exit(0, train(name + "-threads", sets + Sets{"network.transport=in_process"}));
    expect_same_end(name + "-processes", name + "-threads", 8);
  }
}

// The fault is SIGKILL before a message of backward leaves.
TEST_F(TensorProcesses, ARankThatIsKilledInsideAStepCostsNothingButTime) {
  const std::vector<std::pair<Sets, std::string>> rows = {
      {kGrids[0] + kShortMessages, "tp.gradient"}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [sets, traffic] = rows[i];
    SCOPED_TRACE(fmt::format("{}, {}", fmt::join(sets, " "), traffic));
    const std::string name = fmt::format("runs/{}", i);
    const ProcessResult whole = expect_exit(0, train(name + "-whole", sets));
    // In step 6 or 7, so that what is left after the checkpoint of step 4 or 6 is too short for
    // the fault to strike again.
    const int at = sent_by_a_rank(whole.out, traffic) * 7 / 10;
    ASSERT_GT(at, 8) << whole.out;
    const Sets fault = {fmt::format("network.faults=kill:rank=2,traffic={},at={}", traffic, at)};
    const ProcessResult outcome =
        expect_exit(0, train(name + "-killed", sets + fault) + Words{"--max-restarts", "1"});
    EXPECT_TRUE(contains(outcome.err, "rank 2 was killed by signal 9")) << to_text(outcome);
    EXPECT_TRUE(contains(outcome.err, "restart 1 of 1")) << to_text(outcome);
    expect_same_end(name + "-whole", name + "-killed", 8);
    auto states = snapshot(folder_ / checkpoint(name + "-whole", 8));
    std::erase_if(states, [](const auto& file) { return !file.first.starts_with("rank-"); });
    EXPECT_EQ(states.empty(), sets != kGrids[0] + kShortMessages) << states.size();
    for (const auto& [file, sum] : states)  // residuals
      EXPECT_EQ(snapshot(folder_ / checkpoint(name + "-killed", 8))[file], sum) << file;
  }
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
