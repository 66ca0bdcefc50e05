// Tensor grids whose ranks are processes: what they train, how they end and go on, what they
// refuse.
#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/test_effort.hpp"
#include "tests/processes/json_file.hpp"
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

// What a verb says of the model of runs/a, as numbers: in one process, and on a grid.
nlohmann::json said(const nlohmann::json& all, const std::string& verb) {
  if (verb == "evaluate") return {all["loss"]};
  return all[verb == "generate" ? "samples" : "log_probabilities"];
}

TEST_F(TensorProcesses, AModelIsUsedOnAGridAsInOneProcess) {
  expect_exit(0, train("runs/a", {}));
  write_text(folder_ / "questions.jsonl", "{\"ids\": [5, 9, 2, 7, 1]}\n");
  write_text(folder_ / "prompts.txt", "The harbour\n\nA letter\n");
  const std::vector<Words> verbs = {
      {"evaluate", "runs/a", "--data", "data-valid", "--samples", "5"},
      {"predict", "runs/a", "--input", "questions.jsonl"},
      {"generate", "runs/a", "--stdin", "--tokens", "20", "--samples", "2"}};
  const std::vector<Words> grids = {{"--tp", "2", "--method", "1d"}, {"--tp", "2,2,1"}};
  for (std::size_t v = 0; v < verbs.size(); ++v) {
    const std::string& verb = verbs[v].front();
    const auto used = [&](const Words& grid) {
      ProcessSpec asked =
          spec(verbs[v] + Words{"--dtype", "float64", "--json", "said.json"} + grid);
      asked.input = folder_ / "prompts.txt";
      const ProcessResult outcome = Process(asked).wait();
      EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
      EXPECT_EQ(outcome.err, "");
      return std::pair(outcome.out, said(json_of(folder_ / "said.json"), verb));
    };
    const auto [whole_out, whole] = used({});
    for (const Words& grid : is_thorough() ? grids : std::vector<Words>{grids[v % 2]}) {
      SCOPED_TRACE(fmt::format("{} {}", verb, fmt::join(grid, " ")));
      const auto [out, got] = used(grid);
      ASSERT_EQ(got.size(), whole.size());
      if (verb == "generate") {
        EXPECT_EQ(got, whole);
        EXPECT_EQ(out, whole_out);  // rank 0 alone prints
        continue;
      }
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(got[i].get<double>(), whole[i].get<double>(), 1e-10);
    }
  }
}

TEST_F(TensorProcesses, AGridThatCannotHoldAModelIsRefusedOnceWithTheReasons) {
  expect_exit(0, train("runs/a", {}));
  const Words evaluate = {"evaluate", "runs/a", "--data", "data-valid"};
  struct Row {
    Words grid;
    std::vector<std::string> reasons;
  };
  for (const Row& row :
       std::vector<Row>{{{"--tp", "3"}, {"tp = 3 is no grid of tensor.method = \"3d\""}},
                        {{"--tp", "2,1,1", "--method", "2d"}, {"2d"}},
                        {{"--tp", "1,3,1", "--method", "1d"},
                         {"heads = 4, which tp1 = 3 does not divide", "no grid of 3 ranks"}},
                        {{"--method", "1d"}, {"--tp"}}}) {
    const ProcessResult outcome = expect_exit(2, evaluate + row.grid);
    EXPECT_EQ(outcome.out, "");
    for (const std::string& reason : row.reasons) {
      EXPECT_TRUE(contains(outcome.err, reason)) << reason << " in\n" << to_text(outcome);
      EXPECT_EQ(outcome.err.find(reason), outcome.err.rfind(reason)) << to_text(outcome);
    }
  }
}

}  // namespace
}  // namespace laconic
