// What stages and replicas do on tensor grids: what loses nothing trains the model that they train
// without a grid, and what loses something nearly that, and goes on bit for bit.
#include "laconic/base/test_effort.hpp"
#include "tensor_runs.hpp"

namespace laconic {
namespace {

using GridSets = std::vector<std::string>;

class TensorCompose : public TensorRun {
 protected:
  // Nobody looks at evaluations here.
  RunConfig compose_config(const std::string& name, const GridSets& sets) {
    RunConfig c = grid_config(name, sets);
    c.data.valid = "";
    return c;
  }
  // The same run where each rank is alone with its stage.
  static GridSets without_grid(GridSets sets) {
    std::erase_if(sets, [](const std::string& set) {
      return set.starts_with("mesh.tp") || set.starts_with("tensor.");
    });
    return sets;
  }
  static GridSets with(GridSets sets, const GridSets& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
};

// Each method once quickly, and thoroughly on other grids, too.
TEST_F(TensorCompose, WhatLosesNothingTrainsTheModelThatItTrainsWithoutAGrid) {
  const GridSets local = {"mesh.dp=2", "local.steps=2"},
                 linear = with(local, {"local.method=linear", "local.warmup=2"}),
                 late = {"mesh.dp=2", "dp.gradient.late=1", "dp.gradient.late_after=1"},
                 interleaved = {"mesh.pp=2", "pipeline.schedule=interleaved", "pipeline.chunks=2"},
                 halves = {"mesh.pp=2", "pipeline.schedule=zero_bubble"},
                 tied = {"mesh.pp=2", "embedding.tied.late=1", "embedding.tied.late_after=1"};
  const GridSets one = {"mesh.tp=2", "tensor.method=1d"}, two = {"mesh.tp=4", "tensor.method=2d"};
  std::vector<GridSets> rows = {
      with(local, {"mesh.tp=1,1,2"}),  with(linear, one),
      with(late, {"mesh.tp=1,2,1"}),   with(interleaved, {"mesh.tp=2,1,1"}),
      with(halves, {"mesh.tp=1,1,2"}), with(tied, one)};
  if (is_thorough())
    for (const GridSets& method : {local, linear, late, interleaved, halves, tied})
      for (const GridSets& grid : {GridSets{"mesh.tp=1,2,2"}, one, two})
        rows.push_back(with(method, grid));
  for (const GridSets& row : rows) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    const GridSets sets = with(row, {"run.precision=float64"});
    const RunConfig alone = compose_config("plain", without_grid(sets));
    const TrainSummary plain = run(alone), got = run(compose_config("grid", sets));
    EXPECT_NEAR(got.loss, plain.loss, 1e-11);
    EXPECT_LT(largest_difference(got.checkpoint, plain.checkpoint, alone), 1e-11);
    for (const char* name : {"plain", "grid"}) std::filesystem::remove_all(folder_ / name);
  }
}

// Where only weights are cut each rank has samples of its own, as replicas have.
TEST_F(TensorCompose, WeightsThatRanksShareTrainWhatReplicasTrain) {
  for (const std::int64_t ranks : some_of(std::vector<std::int64_t>{4, 2, 8}, 3)) {
    SCOPED_TRACE(ranks);
    const auto config_of = [&](const char* name, const std::string& mesh, std::int64_t microbatch) {
      RunConfig c = grid_config(name, {"run.precision=float64", mesh});
      c.train.microbatch = microbatch;
      return c;
    };
    const RunConfig replicas = config_of("replicas", fmt::format("mesh.dp={}", ranks), 16 / ranks);
    const TrainSummary wanted = run(replicas);
    const TrainSummary got = run(config_of("grid", fmt::format("mesh.tp={},1,1", ranks), 16));
    EXPECT_NEAR(got.loss, wanted.loss, 1e-11);
    EXPECT_NEAR(got.evaluation->loss, wanted.evaluation->loss, 1e-11);
    EXPECT_LT(largest_difference(got.checkpoint, wanted.checkpoint, replicas), 1e-11);
    for (const char* name : {"replicas", "grid"}) std::filesystem::remove_all(folder_ / name);
  }
}

// Whatever loses something does so in other pieces on a grid.
TEST_F(TensorCompose, WhatLosesSomethingTrainsNearlyThatAndGoesOnBitForBit) {
  const std::vector<GridSets> rows = {
      {"mesh.dp=2", "mesh.tp=1,1,2", "dp.gradient.codec=quantise:bits=4"},
      {"mesh.dp=2", "mesh.tp=2,1,1", "dp.gradient.method=compressed_adam", "dp.gradient.codec=sign",
       "dp.gradient.warmup=2"},
      {"mesh.dp=2", "mesh.tp=2", "tensor.method=1d", "dp.gradient.codec=top_k:keep=0.1"},
      {"mesh.pp=2", "mesh.tp=2,1,1", "pp.gradient.codec=low_rank:rank=4",
       "pp.gradient.memory=feedback", "pp.gradient.when=epilogue"},
      {"mesh.dp=2", "mesh.tp=1,2,1", "local.steps=2", "local.method=linear", "local.warmup=2",
       "dp.gradient.codec=quantise:bits=4"},
      {"mesh.dp=2", "mesh.tp=1,1,2", "local.steps=2", "local.method=sparse_loco"},
      {"mesh.pp=2", "mesh.tp=1,2,1", "embedding.tied.codec=quantise:bits=4",
       "embedding.tied.late=1", "embedding.tied.late_after=1"},
      {"mesh.pp=2", "mesh.dp=2", "mesh.tp=2", "tensor.method=1d",
       "dp.gradient.codec=quantise:bits=4", "dp.gradient.stages=1", "pipeline.split=1,2"},
      {"mesh.pp=2", "mesh.tp=1,1,2", "pp.activation.codec=transform:bits=5,refresh=2"}};
  for (const GridSets& row : rows) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    const GridSets sets = with(row, {"checkpoint.every=2"});
    const TrainSummary plain = run(compose_config("plain", without_grid(sets)));
    const TrainSummary got = run(compose_config("grid", sets));
    EXPECT_NEAR(got.loss, plain.loss, 0.02 * plain.loss);
    const TrainSummary resumed = run(compose_config("resumed", sets), checkpoint_of("grid", 2));
    EXPECT_EQ(resumed.loss, got.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(got.checkpoint));
    EXPECT_TRUE(rank_files(resumed.checkpoint) == rank_files(got.checkpoint));
    for (const char* name : {"plain", "grid", "resumed"})
      std::filesystem::remove_all(folder_ / name);
  }
}

}  // namespace
}  // namespace laconic
