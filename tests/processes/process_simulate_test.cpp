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

TEST_F(SimulateVerb, SaysWhatAStepIsAMeanOfAndHowManyRowsAreRead) {
  const std::string local =
      expect_exit(0, with(kTiny, {"--set", "mesh.dp=2", "--set", "local.steps=5"})).out;
  EXPECT_TRUE(contains(local, "means over rounds of 5 local steps by diloco")) << local;
  const Words rows = {"simulate", "preset:embrace",   "--hosts", "preset:lab",
                      "--set",    "model.kind=llama", "--set",   "model.vocabulary=5000",
                      "--set",    "mesh.dp=4"};
  EXPECT_TRUE(
      contains(expect_exit(0, rows).out, "as words come in the One Billion Word benchmark"));
  EXPECT_TRUE(contains(expect_exit(0, with(rows, {"--rows-read", "77"})).out,
                       "a rank is taken to read 77 of 5000 in a step, as told"));
}

TEST_F(SimulateVerb, WhatCannotBeIsSaidAtOnce) {
  EXPECT_TRUE(contains(expect_exit(2, with(kTiny, {"--set", "mesh.dp=8"})).err,
                       "asks for 8 ranks, and the hosts have 4"));
  const std::string err =
      expect_exit(2, with(kTiny, {"--set", "mesh.dp=2", "--straggler", "9=2", "--straggler", "9",
                                  "--lose", "7@x", "--rows-read", "-1"}))
          .err;
  for (const char* part : {"rank 9 of 2", "RANK=FACTOR", "RANK@STEP", "-1 is below 0"})
    EXPECT_TRUE(contains(err, part)) << part << " in " << err;
  EXPECT_TRUE(contains(expect_exit(2, {"simulate", "preset:gpt-tiny", "--hosts", "nowhere"}).err,
                       "model.vocabulary"));
}

}  // namespace
}  // namespace laconic
