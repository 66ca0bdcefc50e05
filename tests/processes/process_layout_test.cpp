// `laconic layout` as a user types it: no worker, no libtorch.
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using LayoutVerb = Workplace;

TEST_F(LayoutVerb, PrintsDrawsAndCounts) {
  const std::string out =
      expect_exit(0, {"layout", "preset:gpt-tiny", "--tp", "2,2,2", "--batch", "8", "--set",
                      "model.vocabulary=256", "--svg", "x.svg", "--json", "x.json"})
          .out;
  EXPECT_TRUE(contains(out, "437,760 parameters, 54,720 on a rank")) << out;
  EXPECT_TRUE(contains(text("x.svg"), "</svg>"));
  const auto json = nlohmann::json::parse(text("x.json"));
  EXPECT_EQ(json["grid"], (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(json["parameters_on_a_rank"], 54'720);
}

TEST_F(LayoutVerb, TakesTheGridOfTheConfigurationUnlessItIsToldAnother) {
  write_text(folder_ / "mine.toml",
             "extends = \"preset:gpt-tiny\"\n[model]\nvocabulary = 256\n[mesh]\ntp = 4\n[tensor]\n"
             "method = \"2d\"\n");
  EXPECT_TRUE(contains(expect_exit(0, {"layout", "mine.toml"}).out, "2d on 2 x 2 x 1 = 4 ranks"));
  EXPECT_TRUE(contains(expect_exit(0, {"layout", "mine.toml", "--method", "1d"}).out,
                       "1d on 1 x 4 x 1 = 4 ranks"));
}

TEST_F(LayoutVerb, WhatCannotBeIsSaidAtOnce) {
  const Words words = {"layout", "preset:gpt-tiny", "--set", "model.vocabulary=256", "--tp"};
  const auto refused = [&](const std::vector<std::string>& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return expect_exit(2, all).err;
  };
  EXPECT_TRUE(contains(refused({"4"}), "tp = 4 is no grid of tensor.method = \"3d\": 8 is"));
  const std::string both = refused({"1,8,1", "--batch", "4"});
  EXPECT_TRUE(contains(both, "heads = 4, which tp1 = 8 does not divide")) << both;
  EXPECT_TRUE(contains(both, "a microbatch has 4 samples")) << both;
  EXPECT_TRUE(contains(both, "that can: [1, 4, 2], [1, 2, 4], [2, 2, 2]")) << both;
  EXPECT_TRUE(contains(expect_exit(2, {"layout", "preset:gpt-tiny"}).err, "model.vocabulary"));
  EXPECT_TRUE(contains(refused({"8", "--svg", "no/x.svg"}), "does not exist"));
}

TEST_F(LayoutVerb, APlanIsPredictedAndRunsAsItIs) {
  write_text(folder_ / "hosts.toml",
             "[[group]]\nname = \"a\"\nhosts = 2\ndevice = \"core\"\n"
             "card = { rate = \"100mbit\", latency = \"1ms\" }\n");
  const auto planned = [&](const std::string& hosts, const std::vector<std::string>& more,
                           int code) {
    Words all = {"plan",    "preset:gpt-tiny", "--set", "model.vocabulary=256", "--hosts", hosts,
                 "--quick", "--top",           "3"};
    all.insert(all.end(), more.begin(), more.end());
    return expect_exit(code, all);
  };
  const std::string out =
      planned("hosts.toml", {"-o", "best.toml", "--html", "p.html", "--json", "p.json"}, 0).out;
  EXPECT_TRUE(contains(out, "Predicted, not measured")) << out;
  EXPECT_TRUE(contains(out, "limited by")) << out;
  const auto json = nlohmann::json::parse(text("p.json"));
  EXPECT_EQ(json["kind"], "predicted");
  EXPECT_EQ(json["plans"].size(), 3);
  EXPECT_TRUE(contains(text("p.html"), "</html>"));
  EXPECT_TRUE(contains(text("best.toml"), "# Predicted: "));
  expect_exit(0, {"config", "check", "best.toml", "--no-data", "--set", "data.train=x"});
  planned("hosts.toml", {"-o", "kept.toml", "--set", "tensor.keep=gathered"}, 0);
  EXPECT_TRUE(contains(text("kept.toml"), "keep = \"gathered\"")) << "it is nobody's choice";
  EXPECT_TRUE(
      contains(planned("hosts.toml", {"--loss-budget", "much"}, 2).err, "'much' is no share"));
  EXPECT_TRUE(contains(planned("nowhere", {}, 2).err, "presets: campus"));
}

}  // namespace
}  // namespace laconic
