// `laconic simulate` as a user types it: no worker, no libtorch.
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using SimulateVerb = Workplace;

const Words kTiny = {"simulate", "preset:gpt-tiny",      "--hosts", "preset:lab",
                     "--set",    "model.vocabulary=256", "--set",   "train.batch=16"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(SimulateVerb, PrintsDrawsTracesAndCounts) {
  const std::string out =
      expect_exit(
          0, with(kTiny, {"--set", "mesh.pp=2", "--set", "mesh.dp=2", "--gantt", "--svg", "x.svg",
                          "--json", "x.json", "--trace", "traces", "--lose", "1@7"}))
          .out;
  EXPECT_TRUE(contains(out, "4 ranks; 16 samples in 8 microbatches of each replica")) << out;
  EXPECT_TRUE(contains(out, "pp.activation")) << out;
  EXPECT_TRUE(contains(out, "rank 1 lost in step 7")) << out;
  EXPECT_TRUE(contains(text("x.svg"), "</svg>"));
  EXPECT_TRUE(contains(text("traces/rank-00003.json"), "traceEvents"));
  const auto json = nlohmann::json::parse(text("x.json"));
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_EQ(json["memory_bytes"].size(), 2U);
  EXPECT_GT(json["step_seconds"].get<double>(), 0);
}

TEST_F(SimulateVerb, WhatCannotBeIsSaidAtOnce) {
  EXPECT_TRUE(contains(expect_exit(2, with(kTiny, {"--set", "mesh.dp=8"})).err,
                       "asks for 8 ranks, and the hosts have 4"));
  EXPECT_TRUE(contains(expect_exit(2, with(kTiny, {"--straggler", "9"})).err, "RANK=FACTOR"));
  EXPECT_TRUE(contains(expect_exit(2, {"simulate", "preset:gpt-tiny", "--hosts", "nowhere"}).err,
                       "model.vocabulary"));
}

}  // namespace
}  // namespace laconic
