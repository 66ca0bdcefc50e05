// Runs on tensor grids that begin with the weights of a folder, and those in short floats.
#include "laconic/base/test_effort.hpp"
#include "tensor_runs.hpp"

namespace laconic {
namespace {

const std::vector<std::vector<std::string>> kGridMeshes = {
    {"mesh.tp=1,2,2"},
    {"mesh.tp=2", "tensor.method=1d"},
    {"mesh.tp=4", "tensor.method=2d"},
    {"mesh.tp=8", "tensor.method=2.5d"},
    {"mesh.tp=2", "tensor.method=1d-sequence", "mesh.pp=2"},
    {"mesh.tp=2,1,1", "mesh.dp=2"}};

TEST_F(TensorRun, AFolderIsReadIntoAnyGrid) {
  const std::vector<std::vector<std::string>> families = {
      {}, {"model.kind=llama", "model.key_heads=4", "model.tied=true"}};
  for (const std::vector<std::string>& family : families) {
    std::vector<std::string> sets = family;
    sets.insert(sets.end(), {"run.precision=float64", "train.steps=2"});
    const auto config_on = [&](const std::string& name, const std::vector<std::string>& mesh) {
      RunConfig c = grid_config(fmt::format("{}{}", name, family.size()), sets);
      set(c, mesh);
      return c;
    };
    const TrainSummary folder = train({.config = config_on("folder", {})});
    const auto from_folder = [&](const std::string& name, const std::vector<std::string>& mesh) {
      RunConfig c = config_on(name, mesh);
      c.model.start = folder.checkpoint;
      c.model.layers = 9;  // the folder's sizes count
      return run(c);
    };
    const TrainSummary alone = from_folder("alone", {});
    EXPECT_LT(alone.loss, folder.loss);
    for (std::size_t m = family.size() / 3; m < kGridMeshes.size(); m += is_thorough() ? 1 : 4) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(kGridMeshes[m], " ")));
      const TrainSummary end = from_folder(fmt::format("on{}-", m), kGridMeshes[m]);
      EXPECT_NEAR(end.loss, alone.loss, 1e-11);
      EXPECT_LT(largest_difference(end.checkpoint, alone.checkpoint, config_on("any", {})), 1e-11);
    }
  }
}

// Rounded at other places than one process does, and bit for bit the same after a stop.
TEST_F(TensorRun, InBfloat16AGridFollowsOneProcess) {
  const std::vector<std::string> in_short = {"run.precision=bfloat16", "checkpoint.every=2"};
  const auto config_on = [&](const std::string& name, const std::vector<std::string>& mesh) {
    RunConfig c = grid_config(name, in_short);
    set(c, mesh);
    return c;
  };
  const TrainSummary alone = train({.config = config_on("alone", {})});
  for (const std::vector<std::string>& mesh : some_of(kGridMeshes, 6, 3)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(mesh, " ")));
    const TrainSummary whole = run(config_on("whole", mesh));
    EXPECT_NEAR(whole.loss, alone.loss, 0.005 * alone.loss);
    EXPECT_NEAR(whole.evaluation->loss, alone.evaluation->loss, 0.005 * alone.evaluation->loss);
    const TrainSummary resumed = run(config_on("resumed", mesh), checkpoint_of("whole", 2));
    EXPECT_EQ(resumed.loss, whole.loss);
    EXPECT_TRUE(model_bytes(resumed.checkpoint) == model_bytes(whole.checkpoint));
    for (const char* name : {"whole", "resumed"}) std::filesystem::remove_all(folder_ / name);
  }
}

}  // namespace
}  // namespace laconic
