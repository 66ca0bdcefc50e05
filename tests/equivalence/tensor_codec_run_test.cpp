// Whole runs on tensor grids with learned codes, sparse codecs and codec overrides: what quick
// tests have no time for.
#include "tensor_runs.hpp"

namespace laconic {
namespace {

class TensorCodecRun : public TensorRun {};

TEST_F(TensorCodecRun, CodesOfACheckpointGoToAnotherGridOrBeginAnew) {
  std::vector<std::string> sets = {"mesh.tp=2,2,1", "checkpoint.every=2",
                                   "tp.activation.codec=auto_encoder:code=4"};
  run(grid_config("from", sets));
  const auto codes = [](const std::string& folder) {
    return MappedFile(folder + "/codes.safetensors").text();
  };
  sets[0] = "mesh.tp=1,2,2";
  EXPECT_LT(run(grid_config("to", sets), checkpoint_of("from", 2)).loss, 5.3);
  // The same rank count with other sizes of codes: drawn anew.
  sets[2] = "tp.activation.codec=auto_encoder:code=5";
  EXPECT_LT(run(grid_config("anew", sets), checkpoint_of("from", 2)).loss, 5.3);
  EXPECT_NE(codes(checkpoint_of("from", 4)), codes(checkpoint_of("anew", 4)));
  // Blocks that had none before have more parameters now, and residuals of their sums are others.
  std::vector<std::string> without = {"mesh.tp=1,2,1", "mesh.dp=2", "checkpoint.every=2",
                                      "dp.gradient.codec=quantise:bits=4"};
  run(grid_config("without", without));
  without.emplace_back("tp.activation.codec=auto_encoder:code=4");
  EXPECT_LT(run(grid_config("with", without), checkpoint_of("without", 2)).loss, 5.3);
}

// What was overridden is in the checkpoint, and so is what is still owed.
TEST_F(TensorCodecRun, OverridesLastAndARunGoesOnWithThem) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.tp=2,2,1", "tp.weight.gradient=top_k:keep=0.1", "tp.activation.codec=quantise:bits=4"},
      {"mesh.tp=1,2,2", "tp.activation.codec=auto_encoder:code=6", "tp.weight.gradient=sign"}};
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string> sets = row;
    sets.insert(sets.end(), {"checkpoint.every=1", "checkpoint.keep=0", "steering.bypass=auto",
                             "steering.after=100"});
    const std::map<std::int64_t, CodecOverrides> changes = {{1, kAllBypassed}};
    const TrainSummary whole = run(grid_config("whole", sets), "none", changes);
    EXPECT_EQ(whole.overrides.size(), 3U);
    for (const int step : {1, 2}) {
      const TrainSummary resumed = run(grid_config(fmt::format("from{}", step), sets),
                                       checkpoint_of("whole", step), changes);
      EXPECT_EQ(resumed.loss, whole.loss);
      EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
      std::filesystem::remove_all(folder_ / fmt::format("from{}", step));
    }
    std::filesystem::remove_all(folder_ / "whole");
  }
}

TEST_F(TensorCodecRun, CodecsOfAGridThatCostMoreThanTheySaveAreBypassed) {
  std::vector<std::string> sets = {"mesh.tp=2,2,1", "steering.bypass=auto", "steering.after=2"};
  sets.insert(sets.end(), kShortMessages.begin(), kShortMessages.end());
  const auto dear = [](Traffic, const ClassCosts& measured) {
    ClassCosts costs = measured;
    costs.codec_seconds = costs.exposed_seconds = 1000;
    costs.raw_seconds = 0;
    costs.active_seconds = 1e-9;  // a fast network
    return costs;
  };
  EXPECT_EQ(run_hooked(grid_config("dear", sets), {.costs = dear}).overrides.size(), 3U);
  const auto cheap = [](Traffic, const ClassCosts& measured) {
    ClassCosts costs = measured;
    costs.codec_seconds = costs.raw_seconds = 0;
    costs.exposed_seconds = costs.active_seconds = 1000;
    return costs;
  };
  EXPECT_TRUE(run_hooked(grid_config("cheap", sets), {.costs = cheap}).overrides.empty());
}

TEST_F(TensorCodecRun, MaskedSumsInFlightTrainAndAreRecomputed) {
  const std::vector<std::string> sets = {"mesh.tp=2", "tensor.method=1d", "checkpoint.every=2",
                                         "tp.activation.codec=random_k:keep=0.7",
                                         "tp.activation.masked=true"};
  const TrainSummary kept = run(grid_config("kept", sets));
  std::vector<std::string> again = sets;
  again.emplace_back("model.recompute=true");
  EXPECT_TRUE(model_bytes(run(grid_config("again", again)).checkpoint) ==
              model_bytes(kept.checkpoint));
  EXPECT_TRUE(model_bytes(run(grid_config("on", sets), checkpoint_of("kept", 2)).checkpoint) ==
              model_bytes(kept.checkpoint));
}

}  // namespace
}  // namespace laconic
