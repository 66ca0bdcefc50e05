// `laconic compare` as a user types it, over runs that `laconic train` has left.
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using CompareVerb = Workplace;

TEST_F(CompareVerb, PutsRunsSideBySide) {
  prepare();
  expect_exit(0, {"train", "run.toml"});
  expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/b", "--set", "train.steps=4",
                  "--set", "optimiser.lr=1e-5", "--set", "optimiser.min_lr=1e-6"});
  const std::string out =
      expect_exit(0, {"compare", "runs/a", "runs/b", "--svg", "loss.svg", "--json", "c.json"}).out;
  EXPECT_TRUE(contains(out, "loss after 4 steps")) << out;
  EXPECT_TRUE(contains(out, "b differs from a:\n")) << out;
  EXPECT_TRUE(contains(out, "optimiser.lr")) << out;
  EXPECT_TRUE(contains(text("loss.svg"), "</svg>"));
  const auto json = nlohmann::json::parse(text("c.json"));
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["step"], 4);
  const auto logged = losses("runs/a");
  double sum = 0;
  for (std::int64_t step = 1; step <= 4; ++step) sum += logged.at(step);
  EXPECT_NEAR(json["runs"][0]["loss_at_step"].get<double>(), sum / 4, 1e-9);
  EXPECT_TRUE(contains(expect_exit(0, {"compare", "runs/b", "runs/a", "--by", "steps"}).out,
                       "training loss over steps"));
}

TEST_F(CompareVerb, NamesEveryFolderThatIsNoRun) {
  write_text(folder_ / "file", "");
  const ProcessResult outcome = expect_exit(2, {"compare", "absent", "file"});
  EXPECT_TRUE(contains(outcome.err, "absent is not a folder")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "file is not a folder")) << outcome.err;
  EXPECT_TRUE(contains(expect_exit(2, {"compare", ".", "."}).err, "has no config.toml"));
  expect_exit(2, {"compare", "runs/a"});
  EXPECT_TRUE(contains(expect_exit(2, {"compare", ".", ".", "--svg", "no/x.svg"}).err,
                       "no does not exist"));
}

}  // namespace
}  // namespace laconic
