// Whole runs on tensor grids: what travels short, what is remembered, and checkpoints that know no
// grid.
#include <cmath>

#include "laconic/base/test_effort.hpp"
#include "tensor_runs.hpp"

namespace laconic {
namespace {

TEST_F(TensorRun, ACheckpointLoadsIntoAnyOtherGrid) {
  const std::vector<std::string> in_double = {"run.precision=float64", "checkpoint.every=2"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), in_double.begin(), in_double.end());
    return sets;
  };
  const TrainSummary alone = train({.config = grid_config("one", with({}))});
  const std::vector<std::vector<std::string>> meshes = {{"mesh.tp=2,2,2"},
                                                        {"mesh.tp=2", "tensor.method=1d"},
                                                        {"mesh.tp=4", "tensor.method=2d"},
                                                        {"mesh.pp=2", "mesh.tp=1,2,1"},
                                                        {}};
  run(grid_config("from", with(meshes[0])));
  for (std::size_t m = 1; m < meshes.size(); ++m) {
    SCOPED_TRACE(m);
    const RunConfig c = grid_config(fmt::format("to{}", m), with(meshes[m]));
    const TrainSummary end = run(c, checkpoint_of("from", 2));
    EXPECT_NEAR(end.loss, alone.loss, 1e-11);
    EXPECT_LT(largest_difference(end.checkpoint, alone.checkpoint, c), 1e-11);
  }
  // And the other way round.
  const RunConfig c = grid_config("back", with({"mesh.tp=1,2,2"}));
  EXPECT_LT(largest_difference(run(c, checkpoint_of("one", 2)).checkpoint, alone.checkpoint, c),
            1e-11);
}

TEST_F(TensorRun, ShortMessagesTrainAndResumeBitForBit) {
  const std::vector<std::vector<std::string>> meshes = {
      {"mesh.tp=4", "tensor.method=1d"}, {"mesh.tp=2,2,1"}, {"mesh.tp=2,1,2", "mesh.pp=2"}};
  for (const std::vector<std::string>& mesh : some_of(meshes, 2, 1)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(mesh, " ")));
    std::vector<std::string> sets = mesh;
    sets.push_back("checkpoint.every=2");
    const TrainSummary exact = run(grid_config("exact", sets));
    sets.insert(sets.end(), kShortMessages.begin(), kShortMessages.end());
    const TrainSummary whole = run(grid_config("short", sets));
    EXPECT_NE(whole.loss, exact.loss);
    EXPECT_NEAR(whole.loss, exact.loss, 0.02 * exact.loss);
    const TrainSummary resumed = run(grid_config("resumed", sets), checkpoint_of("short", 2));
    EXPECT_EQ(resumed.loss, whole.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
    EXPECT_TRUE(rank_files(resumed.checkpoint) == rank_files(whole.checkpoint));
    std::filesystem::remove_all(folder_ / "exact");
    std::filesystem::remove_all(folder_ / "short");
    std::filesystem::remove_all(folder_ / "resumed");
  }
}

// Codecs that keep some elements, or a few directions, of each message.
TEST_F(TensorRun, SparseAndLowRankMessagesTrainAndResumeBitForBit) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.tp=1,2,2", "tp.activation.codec=top_k:keep=0.5", "tp.activation.masked=true"},
      {"mesh.tp=2,1,2", "tp.activation.codec=low_rank:rank=6", "tp.gradient.codec=low_rank:rank=6",
       "tp.weight.gradient=low_rank:rank=4"},
      {"mesh.tp=1,2,2", "tp.activation.codec=quantise:bits=8,group=row",
       "tp.gradient.codec=quantise:bits=8,group=channel",
       "tp.weight.codec=quantise:bits=8,group=channel",
       "tp.weight.gradient=quantise:bits=8,group=row"}};
  const TrainSummary exact = run(grid_config("exact", {"mesh.tp=2,1,1"}));
  for (const std::vector<std::string>& row : rows) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    std::vector<std::string> sets = row;
    sets.insert(sets.end(), {"checkpoint.every=2"});
    const TrainSummary whole = run(grid_config("short", sets));
    EXPECT_NE(whole.loss, exact.loss);
    EXPECT_NEAR(whole.loss, exact.loss, 0.05 * exact.loss);
    const TrainSummary resumed = run(grid_config("resumed", sets), checkpoint_of("short", 2));
    EXPECT_EQ(resumed.loss, whole.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
    EXPECT_TRUE(rank_files(resumed.checkpoint) == rank_files(whole.checkpoint));
    for (const char* name : {"short", "resumed"}) std::filesystem::remove_all(folder_ / name);
  }
}

// Maps of codes are parameters: they train, and are in checkpoints that know no grid.
TEST_F(TensorRun, LearnedCodesAreParametersOfARun) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.tp=2", "tensor.method=1d", "tp.activation.codec=auto_encoder:code=8",
       "tp.gradient.codec=quantise:bits=8"},
      {"mesh.tp=1,2,2", "tp.activation.codec=auto_encoder:code=6", "tp.activation.tied=true",
       "model.recompute=true"},
      {"mesh.tp=4", "tensor.method=2d", "tp.activation.codec=auto_encoder:code=6,values=bf16",
       "mesh.pp=2"},
      {"mesh.tp=1,1,2", "mesh.dp=2", "tp.activation.codec=auto_encoder:code=6",
       "tp.activation.start=noise", "dp.gradient.codec=quantise:bits=8",
       "tp.activation.layers=last half"}};
  for (const std::vector<std::string>& row : some_of(rows, 2)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    std::vector<std::string> sets = row;
    sets.emplace_back("checkpoint.every=2");
    const TrainSummary whole = run(grid_config("short", sets));
    EXPECT_LT(whole.loss, 5.3);  // it begins at 5.54
    const TrainSummary resumed = run(grid_config("resumed", sets), checkpoint_of("short", 2));
    EXPECT_EQ(resumed.loss, whole.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
    EXPECT_EQ(MappedFile(resumed.checkpoint + "/codes.safetensors").text(),
              MappedFile(whole.checkpoint + "/codes.safetensors").text());
    EXPECT_NE(MappedFile(checkpoint_of("short", 2) + "/codes.safetensors").text(),
              MappedFile(whole.checkpoint + "/codes.safetensors").text());
    // Without codes, and in one process, the rest of it is a model all the same.
    EXPECT_GT(run(grid_config("alone", {}), checkpoint_of("short", 2)).loss, 0);
    for (const char* name : {"short", "resumed", "alone"})
      std::filesystem::remove_all(folder_ / name);
  }
}

// As in the settings of the study: inside layers, and where stages end.
TEST_F(TensorRun, CodesOfLayersAndOfBoundariesCompose) {
  const std::vector<std::string> sets = {"mesh.tp=2",
                                         "tensor.method=1d",
                                         "mesh.pp=2",
                                         "pipeline.split=2,1",
                                         "tp.activation.codec=auto_encoder:code=8",
                                         "tp.activation.start=pca",
                                         "pp.activation.codec=\"auto_encoder:code=8,values=f16\"",
                                         "pp.activation.start=pca",
                                         "pp.gradient.codec=half:kind=f16",
                                         "evaluate.encoded=true",
                                         "checkpoint.every=2"};
  const TrainSummary whole = run(grid_config("both", sets));
  EXPECT_LT(whole.loss, 5.4);  // it begins at 5.54
  EXPECT_LT(whole.evaluation->loss, 5.4);
  const TrainSummary resumed = run(grid_config("resumed", sets), checkpoint_of("both", 2));
  EXPECT_EQ(resumed.loss, whole.loss);
  EXPECT_EQ(resumed.evaluation->loss, whole.evaluation->loss);
  EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
}

// In double, since what is compared is little. What the first microbatch has most of is kept better
// than what a drawn projection keeps, as the guard sees.
TEST_F(TensorRun, CodesOfPrincipalDirectionsKeepMore) {
  const std::vector<std::vector<std::string>> meshes = {
      {"mesh.tp=2", "tensor.method=1d"},
      {"mesh.tp=2,2,2"},
      {"mesh.tp=4", "tensor.method=2d"},
      {"mesh.tp=1,2,1", "mesh.pp=2", "mesh.dp=2"}};
  for (const std::vector<std::string>& mesh : some_of(meshes, 4)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(mesh, " ")));
    std::vector<double> cosines;
    for (const char* start : {"orthogonal", "pca"}) {
      std::vector<std::string> sets = mesh;
      sets.insert(sets.end(), {"tp.activation.codec=auto_encoder:code=4", "steering.guard=watch",
                               "steering.every=1", "steering.min_cosine=0", "model.dropout=0",
                               "checkpoint.every=1", "train.steps=2",
                               fmt::format("tp.activation.start={}", start)});
      const TrainSummary whole = run(grid_config(start, sets));
      cosines.push_back(whole.guard.classes.at(Traffic::tp_activation).first.cosine);
      const TrainSummary resumed = run(grid_config("resumed", sets), checkpoint_of(start, 1));
      EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
      std::filesystem::remove_all(folder_ / start);
      std::filesystem::remove_all(folder_ / "resumed");
    }
    EXPECT_GT(cosines[1], cosines[0] + 0.02);
  }
}

// What is computed once more draws the same numbers, so nothing differs.
TEST_F(TensorRun, RecomputationSeesTheSameDecodedValues) {
  std::vector<std::string> sets = {"mesh.tp=1,2,2"};
  sets.insert(sets.end(), kShortMessages.begin(), kShortMessages.end());
  sets.emplace_back("tp.activation.codec=quantise:bits=4,rounding=stochastic,grid=ends");
  const TrainSummary kept = run(grid_config("kept", sets));
  sets.emplace_back("model.recompute=true");
  const TrainSummary again = run(grid_config("again", sets));
  EXPECT_EQ(again.loss, kept.loss);
  EXPECT_TRUE(model_bytes(again.checkpoint) == model_bytes(kept.checkpoint));
}

// What loses something beside a grid, and tensor_compose_test.cpp does not have.
TEST_F(TensorRun, ComposesWithEverythingOnStagesAndReplicas) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.pp=2", "mesh.tp=1,2,1", "pp.activation.codec=quantise:bits=4",
       "pp.activation.memory=delta", "pp.gradient.codec=quantise:bits=6"},
      {"mesh.dp=2", "mesh.tp=2", "tensor.method=1d", "dp.gradient.method=power_sgd",
       "dp.gradient.rank=4"},
      {"mesh.dp=2", "mesh.tp=2", "tensor.method=1d", "dp.gradient.codec=quantise:bits=4"},
      {"mesh.pp=2", "mesh.tp=1,2,1", "steering.guard=watch", "steering.every=1",
       "steering.shadow=2", "pp.activation.codec=quantise:bits=8"}};
  int i = 0;
  for (const std::vector<std::string>& row : rows) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    std::vector<std::string> without = row;
    std::erase_if(without, [](const std::string& set) { return set.starts_with("mesh.tp"); });
    const TrainSummary plain = run(grid_config(fmt::format("plain{}", i), without));
    std::vector<std::string> sets = row;
    sets.emplace_back("checkpoint.every=2");
    const std::string saved = fmt::format("saved{}", i);
    const TrainSummary got = run(grid_config(saved, sets));
    EXPECT_NEAR(got.loss, plain.loss, 0.02 * plain.loss);
    const TrainSummary resumed =
        run(grid_config(fmt::format("resumed{}", i++), sets), checkpoint_of(saved, 2));
    EXPECT_EQ(resumed.loss, got.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(got.checkpoint));
  }
}

// With a learning rate of nothing, the loss of a step is that of an evaluation of its samples that
// sends as the step did, to the last bit; one that sends whole messages has another.
TEST_F(TensorRun, EncodedEvaluationsSendAsTrainingDoes) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.tp=2", "tensor.method=1d", "tp.activation.codec=quantise:bits=2,block=16"},
      {"mesh.tp=2", "tensor.method=1d", "tp.activation.codec=auto_encoder:code=4"},
      {"mesh.tp=1,2,1", "tp.activation.codec=random_k:keep=0.3", "mesh.pp=2",
       "pp.activation.codec=quantise:bits=2,block=16"},
      {"mesh.tp=2,1,1", "tp.weight.codec=quantise:bits=3,block=16"}};
  int i = 0;
  for (const std::vector<std::string>& row : some_of(rows, 2)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
    RunConfig c = grid_config(fmt::format("encoded{}", i++), row);
    c.optimiser.lr = c.optimiser.min_lr = 1e-30;
    c.model.dropout = 0;
    c.data.train = c.data.valid = folder_ / "few";
    c.train.steps = 1;
    c.train.batch = c.train.microbatch = 8;
    c.data.shuffle = false;
    c.evaluate.samples = 8;
    const TrainSummary whole = run(c);
    c.run.folder = c.run.folder + "-again";
    c.evaluate.encoded = true;
    const TrainSummary encoded = run(c);
    EXPECT_EQ(encoded.loss, whole.loss);
    EXPECT_NEAR(encoded.evaluation->loss, encoded.loss, 1e-6);
    EXPECT_GT(std::abs(whole.evaluation->loss - whole.loss), 1e-4);
  }
}

// More replicas than two: their sums have an order, and copies of vectors within the grid another.
TEST_F(TensorRun, ThreeReplicasOf1dAreOneProcess) {
  const std::vector<std::string> in_double = {"run.precision=float64", "train.batch=24"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), in_double.begin(), in_double.end());
    return sets;
  };
  const TrainSummary alone = train({.config = grid_config("alone", with({}))});
  const RunConfig c = grid_config("three", with({"mesh.dp=3", "mesh.tp=2", "tensor.method=1d"}));
  const TrainSummary three = run(c);
  EXPECT_NEAR(three.loss, alone.loss, 1e-11);
  EXPECT_LT(largest_difference(three.checkpoint, alone.checkpoint, c), 1e-11);
}

// Parts that were cut in another way are not taken for those of now.
TEST_F(TensorRun, WhatAnotherMethodRememberedIsDropped) {
  std::vector<std::string> sets = {"mesh.tp=2,2,1", "checkpoint.every=2", "mesh.dp=2",
                                   "local.steps=2"};
  run(grid_config("from", sets));
  sets.emplace_back("tensor.method=2d");
  EXPECT_GT(run(grid_config("to", sets), checkpoint_of("from", 2)).loss, 0);
}

// What a codec that is no more had left does not come back.
TEST_F(TensorRun, ResidualsGoWithTheirCodec) {
  std::vector<std::string> sets = {"mesh.tp=2,1,1", "checkpoint.every=2",
                                   "tp.weight.gradient=quantise:bits=4"};
  const auto has_residuals = [&](const std::string& checkpoint) {
    for (const auto& [name, bytes] : rank_files(checkpoint))
      if (bytes.find("grid.") != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(has_residuals(run(grid_config("with", sets)).checkpoint));
  const std::string before = checkpoint_of("with", 2);
  EXPECT_TRUE(has_residuals(before));
  sets.emplace_back("tp.weight.gradient=raw");
  EXPECT_FALSE(has_residuals(run(grid_config("without", sets), before).checkpoint));
}

TEST_F(TensorRun, BypassedFromTheStartARunHasTheBitsOfARawOne) {
  for (const char* mesh : {"mesh.tp=2,2,1"}) {
    const TrainSummary raw = run(grid_config("raw", {mesh}));
    std::vector<std::string> sets = {mesh};
    sets.insert(sets.end(), kShortMessages.begin(), kShortMessages.end());
    const TrainSummary bypassed = run(grid_config("bypassed", sets), "none", {{0, kAllBypassed}});
    EXPECT_EQ(bypassed.overrides.size(), 3U);
    EXPECT_TRUE(model_bytes(bypassed.checkpoint) == model_bytes(raw.checkpoint));
    std::filesystem::remove_all(folder_ / "raw");
    std::filesystem::remove_all(folder_ / "bypassed");
  }
}

TEST_F(TensorRun, TheGuardSeesAGridAndRaisesItsBits) {
  std::vector<std::string> sets = {"mesh.tp=1,2,2", "tp.activation.codec=quantise:bits=2",
                                   "tp.gradient.codec=quantise:bits=8",
                                   "tp.weight.gradient=quantise:bits=8"};
  std::vector<std::string> guarded = sets;
  guarded.insert(guarded.end(), {"steering.guard=fallback", "steering.every=2",
                                 "steering.patience=1", "steering.min_cosine=0.98"});
  const TrainSummary seen = run(grid_config("guarded", guarded));
  ASSERT_EQ(seen.guard.alarms.size(), 1U);
  EXPECT_EQ(seen.guard.alarms[0].traffic, Traffic::tp_activation);
  EXPECT_EQ(seen.guard.alarms[0].step, 2);
  EXPECT_TRUE(seen.guard.classes.contains(Traffic::tp_gradient));
  EXPECT_EQ(
      seen.overrides,
      (std::vector<std::pair<std::string, std::string>>{{"tp.activation", "quantise:bits=3"}}));
  // It is what a run would be whose bits are raised then.
  const TrainSummary told = run(grid_config("told", sets), "none",
                                {{2, {{Traffic::tp_activation, {.codec = Quantise{.bits = 3}}}}}});
  EXPECT_TRUE(model_bytes(seen.checkpoint) == model_bytes(told.checkpoint));
  // Codes are measured, too.
  const TrainSummary learned =
      run(grid_config("learned", {"mesh.tp=1,2,2", "tp.activation.codec=auto_encoder:code=2",
                                  "steering.guard=fallback", "steering.every=1",
                                  "steering.patience=1", "steering.min_cosine=0.98"}));
  EXPECT_EQ(learned.overrides,
            (std::vector<std::pair<std::string, std::string>>{{"tp.activation", "bypassed"}}));
}

TEST_F(TensorRun, CodesThatCannotBeAreRefusedWithAllReasons) {
  const std::string text = to_text(check(grid_config(
      "bad", {"mesh.tp=1,2,2", "tp.activation.codec=auto_encoder:code=9",
              "tp.gradient.codec=auto_encoder", "tp.weight.gradient=auto_encoder:code=2"})));
  for (const char* part :
       {"tp.activation.codec: a code of 9 numbers for rows of 8 columns (tp.h.*.attn.c_attn.in)",
        "tp.gradient.codec: auto_encoder's maps are learned", "tp.weight.gradient: auto_encoder's"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(TensorRun, BadGridsAreRefusedWithAllReasons) {
  RunConfig c = grid_config(
      "bad", {"mesh.tp=3,2,1", "tp.activation.codec=sign", "tp.gradient.layers=9",
              "tp.weight.codec=auto_encoder", "tp.activation.masked=true", "train.microbatch=4"});
  const Problems problems = check(c);
  const std::string text = to_text(problems);
  for (const char* part :
       {"layer 9", "tp.weight.codec", "tp.activation.masked", "microbatch", "does not divide"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

}  // namespace
}  // namespace laconic
