// `laconic measure` as a user types it, and what plan and simulate make of its file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using MeasureVerb = Workplace;

const Words kSmall = {"--set", "model.layers=1",       "--set", "model.width=32",
                      "--set", "model.heads=2",        "--set", "model.context=16",
                      "--set", "model.vocabulary=256", "--set", "train.batch=4"};

TEST_F(MeasureVerb, WritesHostsThatAreReadByPlanAndSimulate) {
  const Words two = kSmall + Words{"--set", "mesh.dp=2"};
  const std::string out =
      expect_exit(0, Words{"measure", "preset:gpt-tiny", "--families", "lstm"} + two).out;
  for (const char* part : {"GPT, 1 layers", "float32", "bfloat16", "float64", "LSTM",
                           "hosts.toml: 2 ranks on 2 hosts"})
    EXPECT_TRUE(contains(out, part)) << part << " in " << out;
  const std::string file = text("hosts.toml");
  for (const char* part : {"# flops: GPT", "# family.lstm: LSTM", "\nflops = { float32 = ",
                           "bfloat16 = ", "family.lstm.flops = { float32 = ", "codec.transform = {",
                           "codec.huffman = {", "factors = {", "card = { rate = "})
    EXPECT_TRUE(contains(file, part)) << part << " in " << file;
  expect_exit(0, Words{"simulate", "preset:gpt-tiny", "--hosts", "hosts.toml"} + two);
  const std::string plan =
      expect_exit(0, Words{"plan", "preset:gpt-tiny", "--hosts", "hosts.toml", "--quick"} + kSmall +
                         Words{"--set", "run.precision=float64"})
          .out;
  EXPECT_TRUE(contains(plan, "Predicted")) << plan;
}

// Ten times slower in its family is ten times slower in the answer; other families stay as they
// are.
TEST_F(MeasureVerb, RatesOfAFamilyAreThoseThatPlanAndSimulateTake) {
  const std::string group = "[[group]]\nname = 'a'\ndevice = 'mine'\ncard = { rate = '1gbit' }\n";
  const std::string device = "[[device]]\nname = 'mine'\nflops = { float32 = 1e9 }\n";
  write_text(folder_ / "plain.toml", device + group);
  write_text(folder_ / "slow.toml", device + "family.gpt.flops = { float32 = 1e8 }\n" + group);
  const auto seconds = [&](const std::string& verb, const std::string& hosts,
                           const std::string& preset) {
    Words words = Words{verb, "preset:" + preset, "--hosts", hosts, "--json", "x.json"} + kSmall;
    if (verb == "plan") words.emplace_back("--quick");
    expect_exit(0, words);
    const auto json = nlohmann::json::parse(text("x.json"));
    return (verb == "plan" ? json["plans"][0]["predicted_seconds"] : json["step_seconds"])
        .get<double>();
  };
  for (const char* verb : {"simulate", "plan"}) {
    EXPECT_NEAR(seconds(verb, "slow.toml", "gpt-tiny") / seconds(verb, "plain.toml", "gpt-tiny"),
                10, 1e-6)
        << verb;
    EXPECT_EQ(seconds(verb, "slow.toml", "llama-small"), seconds(verb, "plain.toml", "llama-small"))
        << verb;
  }
}

TEST_F(MeasureVerb, WhatCannotBeIsToldTogetherBeforeAnythingIsMeasured) {
  const std::string err = expect_exit(2, {"measure", "preset:gpt-tiny", "--families",
                                          "lama,gpt,brt", "-o", "nowhere/hosts.toml"})
                              .err;
  for (const char* part :
       {"no family 'lama'; did you mean 'llama'?", "no family 'brt'; did you mean 'bert'?",
        "model.vocabulary: neither", "nowhere does not exist"})
    EXPECT_TRUE(contains(err, part)) << part << " in " << err;
}

}  // namespace
}  // namespace laconic
