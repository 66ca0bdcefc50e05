// All axes of the mesh at once: two stages of two replicas of the paper's cube, 32 ranks.
#include "tensor_runs.hpp"

namespace laconic {
namespace {

class TensorMesh : public TensorRun {
 protected:
  RunConfig config_on(const std::string& name, const std::vector<std::string>& mesh,
                      const std::vector<std::string>& sets) {
    RunConfig c = grid_config(
        name, {"model.layers=4", "train.batch=32", "run.precision=float64", "checkpoint.every=2"});
    set(c, mesh);
    set(c, sets);
    return c;
  }
};

const std::vector<std::string> kAllAxes = {"mesh.pp=2", "mesh.dp=2", "mesh.tp=2,2,2"};

TEST_F(TensorMesh, StagesReplicasAndACubeTrainTheModelOfOneProcess) {
  const TrainSummary alone = train({.config = config_on("alone", {}, {})});
  const RunConfig c = config_on("all", kAllAxes, {});
  ASSERT_EQ(size(mesh_of(c)), 32);
  const TrainSummary all = run(c);
  EXPECT_NEAR(all.loss, alone.loss, 1e-11);
  EXPECT_NEAR(all.evaluation->loss, alone.evaluation->loss, 1e-11);
  EXPECT_LT(largest_difference(all.checkpoint, alone.checkpoint, c), 1e-11);
  // And one process goes on where they have been.
  const TrainSummary rest = run(config_on("rest", {}, {}), checkpoint_of("all", 2));
  EXPECT_NEAR(rest.loss, alone.loss, 1e-11);
  EXPECT_LT(largest_difference(rest.checkpoint, alone.checkpoint, c), 1e-11);
}

// Every class of messages is short at once, and what is remembered of them is in the checkpoint.
TEST_F(TensorMesh, EveryMessageMayBeShort) {
  const std::vector<std::string> codecs = [] {
    std::vector<std::string> sets = {
        "pp.activation.codec=quantise:bits=8", "pp.gradient.codec=quantise:bits=8",
        "pp.gradient.memory=feedback", "dp.gradient.codec=quantise:bits=4"};
    sets.insert(sets.end(), kShortMessages.begin(), kShortMessages.end());
    return sets;
  }();
  const TrainSummary exact = run(config_on("exact", kAllAxes, {"run.precision=float32"}));
  std::vector<std::string> sets = codecs;
  sets.emplace_back("run.precision=float32");
  const TrainSummary whole = run(config_on("short", kAllAxes, sets));
  EXPECT_NE(whole.loss, exact.loss);
  EXPECT_NEAR(whole.loss, exact.loss, 0.02 * exact.loss);
  const TrainSummary resumed = run(config_on("resumed", kAllAxes, sets), checkpoint_of("short", 2));
  EXPECT_EQ(resumed.loss, whole.loss);
  EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
  EXPECT_TRUE(rank_files(resumed.checkpoint) == rank_files(whole.checkpoint));
}

}  // namespace
}  // namespace laconic
