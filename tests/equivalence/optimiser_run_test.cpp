// Runs with each optimiser: any mesh trains the same model, and a run that goes on is one that was
// never stopped.
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class OptimiserRun : public PipelineParallel {
 protected:
  RunConfig config_of(const std::string& kind, const std::string& name, std::int64_t pp,
                      std::int64_t dp = 1) {
    RunConfig c = config(kind + "-" + name, pp, dp);
    c.model.layers = 3;
    set(c, {"optimiser.kind=" + kind, "optimiser.schedule=wsd", "optimiser.decay=1-sqrt",
            "optimiser.nesterov=true"});
    return c;
  }
};

const char* const kKinds[] = {"adamw", "adam", "sgd", "lion", "muon"};

TEST_F(OptimiserRun, APipelineTrainsTheModelOfOneProcessBitForBit) {
  std::set<std::string> models;
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    const TrainSummary alone = train({.config = config_of(kind, "one", 1)});
    const std::string expected = model_bytes(alone.checkpoint);
    EXPECT_TRUE(models.insert(expected).second) << "another kind has trained the same model";
    RunConfig c = config_of(kind, "pipeline", 3);
    const TrainSummary together = run(c);
    EXPECT_EQ(together.loss, alone.loss);
    EXPECT_TRUE(model_bytes(together.checkpoint) == expected);
  }
}

TEST_F(OptimiserRun, InDoublePrecisionAnyMeshTrainsTheSameModel) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    RunConfig one = config_of(kind, "one", 1);
    one.run.precision = RunPrecision::float64;
    const TrainSummary alone = train({.config = one});
    for (const auto& [pp, dp] : {std::pair{1, 2}, {2, 2}}) {
      RunConfig c = config_of(kind, fmt::format("{}x{}", pp, dp), pp, dp);
      c.run.precision = RunPrecision::float64;
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-11);
      // The sign of a mean that is 0 but for rounding depends on the order of a sum.
      if (kind != "lion") {
        EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-10);
      }
    }
  }
}

TEST_F(OptimiserRun, ARunThatGoesOnIsOneThatWasNeverStopped) {
  for (const std::string kind : kKinds) {
    for (const auto& [pp, dp, local] : {std::tuple{1, 1, 0}, {2, 1, 0}, {1, 2, 2}}) {
      SCOPED_TRACE(fmt::format("{} {}x{}, {} local steps", kind, pp, dp, local));
      const std::string name = fmt::format("{}x{}", pp, dp);
      RunConfig whole = config_of(kind, name + "whole", pp, dp);
      whole.train.steps = 4;
      whole.local.steps = local;
      const std::string expected = model_bytes(run(whole).checkpoint);
      RunConfig c = whole;
      c.run.folder = folder_ / (kind + name + "parts");
      c.optimiser.decay_steps = 4;
      c.train.steps = 2;
      run(c);
      c.train.steps = 4;
      c.optimiser.decay_steps = 0;
      const TrainSummary rest = run(c, "auto");
      EXPECT_EQ(rest.first_step, 2);
      EXPECT_TRUE(model_bytes(rest.checkpoint) == expected);
    }
  }
}

TEST_F(OptimiserRun, KeepsNoMomentThatTheAlgorithmDoesNotHave) {
  const auto bytes = [&](const std::string& kind) {
    const TrainSummary summary = train({.config = config_of(kind, "size", 1)});
    return std::filesystem::file_size(summary.checkpoint + "/optimiser.safetensors");
  };
  const auto adamw = static_cast<double>(bytes("adamw"));
  EXPECT_NEAR(static_cast<double>(bytes("sgd")) / adamw, 0.5, 0.03);
  EXPECT_NEAR(static_cast<double>(bytes("lion")) / adamw, 0.5, 0.03);
  EXPECT_LT(static_cast<double>(bytes("muon")) / adamw, 0.9);
}

TEST_F(OptimiserRun, MomentsOfAnotherAlgorithmAreRefused) {
  RunConfig c = config_of("lion", "first", 1);
  train({.config = c});
  c.train.steps = 6;
  c.optimiser.kind = OptimiserKind::sgd;
  try {
    train({.config = c, .start = {.resume = "auto"}});
    FAIL() << "went on";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("has the moments of \"lion\""), std::string::npos)
        << error.what();
  }
  RunConfig adam = config_of("adam", "second", 1);
  train({.config = adam});
  adam.train.steps = 4;
  adam.optimiser.kind = OptimiserKind::adamw;
  EXPECT_EQ(train({.config = adam, .start = {.resume = "auto"}}).first_step, 3);
}

}  // namespace
}  // namespace laconic
