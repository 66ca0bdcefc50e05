// steering.bypass = "auto" in whole runs: what is decided, that all ranks do, and that it lasts.
//
// Nothing here may depend on the clock of a busy machine: a network is so slow, by what a
// pre-flight would have found, that seconds of noise do not count, or costs are given.
#include <nlohmann/json.hpp>

#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

constexpr double kSlow = 10;  // bytes a second

// Codecs that take longer than any network.
ClassCosts dear_costs(Traffic, const ClassCosts& measured) {
  ClassCosts costs = measured;
  costs.codec_seconds = costs.exposed_seconds = 1000;
  costs.raw_seconds = 0;
  return costs;
}

class BypassRuns : public PipelineParallel {
 protected:
  // Four ranks whose codecs are dear: factors of small matrices, in every class but one.
  RunConfig dear(const std::string& name) {
    RunConfig c = config(name, 2, 2);
    c.train.steps = 6;
    c.optimiser.decay_steps = 6;
    c.steering.bypass = BypassMode::automatic;
    c.steering.after = 2;
    set(c, {"pp.activation.codec=low_rank:rank=8", "pp.gradient.codec=low_rank:rank=8",
            "dp.gradient.method=power_sgd", "dp.gradient.rank=8"});
    return c;
  }

  // The summaries of all ranks. `rate`: what a pre-flight would have found, in bytes a second.
  static std::vector<TrainSummary> run_all(const RunConfig& c, double rate,
                                           const std::string& resume = "none",
                                           const CostsOf& costs = {}) {
    const int ranks = size(mesh_of(c));
    std::vector<TrainSummary> summaries(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(60)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      summaries[static_cast<std::size_t>(transport.rank())] =
          train({.config = c,
                 .start = {.resume = resume},
                 .world = &world,
                 .link = {.bytes_per_second = rate, .slowest_bytes_per_second = rate}},
                {.costs = costs});
      engine.flush();
      world.gather({});
      engine.flush();
    });
    return summaries;
  }

  // Lines of the log that say what was decided, with their steps.
  static std::vector<std::pair<std::int64_t, std::string>> notes(const RunConfig& c) {
    std::vector<std::pair<std::int64_t, std::string>> found;
    std::ifstream file(c.run.folder + "/log.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto json = nlohmann::json::parse(line); json.contains("note"))
        found.emplace_back(json["step"], json["note"]);
    return found;
  }
};

using Said = std::vector<std::pair<std::string, std::string>>;

TEST_F(BypassRuns, DearCodecsOnAFastNetworkAreBypassedByAllRanks) {
  const RunConfig c = dear("fast");
  const auto summaries = run_all(c, 1e12, "none", dear_costs);
  const Said expected = {
      {"dp.gradient", "bypassed"}, {"pp.activation", "bypassed"}, {"pp.gradient", "bypassed"}};
  for (const TrainSummary& summary : summaries) EXPECT_EQ(summary.overrides, expected);
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 3U);
  for (const auto& [step, text] : said) {
    EXPECT_EQ(step, 3);  // the first is not counted, two are
    EXPECT_TRUE(text.starts_with("bypass: ")) << text;
    EXPECT_NE(text.find("travels raw"), std::string::npos) << text;
  }
  EXPECT_NE(to_json(summaries[0], c).find("\"dp.gradient\": \"bypassed\""), std::string::npos);
}

TEST_F(BypassRuns, OnASlowNetworkEverythingStaysEncoded) {
  RunConfig c = dear("slow");
  c.train.steps = 3;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.gradient.codec=quantise:bits=4",
          "dp.gradient.method=codec", "dp.gradient.codec=quantise:bits=4"});
  for (const TrainSummary& summary : run_all(c, kSlow)) EXPECT_EQ(summary.overrides, Said());
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 3U);
  for (const auto& [step, text] : said)
    EXPECT_NE(text.find("stays encoded: a step loses "), std::string::npos) << text;
}

// All samples come for the first time, and travel raw; differences are about a ninth of that,
// headers included.
TEST_F(BypassRuns, FirstVisitsAreNotWhatADeltaMemoryIsJudgedBy) {
  RunConfig c = dear("delta");
  c.train.steps = 3;
  set(c, {"pp.activation.codec=quantise:bits=2", "pp.activation.memory=delta",
          "pp.activation.first=raw"});
  const TrainSummary summary = run_all(c, kSlow)[0];
  for (const TrafficTotal& total : summary.traffic)
    if (total.traffic == Traffic::pp_activation) {
      EXPECT_GT(total.sent.wire_bytes, total.sent.raw_bytes);
    }
  const auto said = notes(c);
  ASSERT_FALSE(said.empty());
  // 4 messages of 2 samples, 24 tokens and 16 numbers: 12,288 bytes take 1,229 seconds.
  EXPECT_TRUE(said[0].second.starts_with("bypass: pp.activation stays encoded")) << said[0].second;
  EXPECT_NE(said[0].second.find(" and 2 m 19 s of sending, raw: "), std::string::npos)
      << said[0].second;
}

// The second rank of each pipeline has more layers, whose sums are exact: had its bytes counted,
// encoding would have saved nothing.
TEST_F(BypassRuns, RanksThatSumExactlyDoNotCount) {
  RunConfig c = dear("stages");
  c.train.steps = 3;
  set(c, {"pp.activation.codec=raw", "pp.gradient.codec=raw", "dp.gradient.method=codec",
          "dp.gradient.codec=quantise:bits=4", "dp.gradient.stages=1", "pipeline.split=1,5"});
  for (const TrainSummary& summary : run_all(c, kSlow)) EXPECT_EQ(summary.overrides, Said());
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].second.starts_with("bypass: dp.gradient stays encoded")) << said[0].second;
  EXPECT_EQ(said[0].second.find("saves -"), std::string::npos) << said[0].second;
}

TEST_F(BypassRuns, WhatNobodyEncodesIsNotAskedAbout) {
  RunConfig c = dear("none");
  c.train.steps = 3;
  set(c, {"dp.gradient.stages=0"});
  run_all(c, 1e12, "none", dear_costs);
  ASSERT_EQ(notes(c).size(), 2U);
  for (const auto& [step, text] : notes(c)) EXPECT_TRUE(text.starts_with("bypass: pp.")) << text;
}

// Nobody measures for nothing, and so the guard need not wait.
TEST_F(BypassRuns, ARunTooShortToDecideSaysSoAndIsGuarded) {
  RunConfig plain = config("plain", 2, 2);  // nothing to decide about
  plain.train.steps = 1;
  plain.steering.bypass = BypassMode::automatic;
  testing::internal::CaptureStdout();
  run_all(plain, 1e12);
  EXPECT_EQ(testing::internal::GetCapturedStdout().find("will not decide"), std::string::npos);
  for (const bool is_short : {true, false}) {
    RunConfig c = dear(is_short ? "short" : "long");
    c.train.steps = is_short ? 2 : 3;
    c.steering.guard = GuardMode::watch;
    c.steering.every = 1;
    testing::internal::CaptureStdout();
    const auto summaries = run_all(c, 1e12, "none", dear_costs);
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_EQ(said.find("note: steering.bypass = \"auto\" will not decide anything: it measures "
                        "until step 3, and train.steps = 2; lower steering.after (2)") !=
                  std::string::npos,
              is_short)
        << said;
    for (const TrainSummary& summary : summaries)
      EXPECT_EQ(summary.guard.classes.empty(), !is_short);
    EXPECT_EQ(notes(c).empty(), is_short);
  }
}

// References that nobody uses are not read, and nobody asks for raw gradients again.
TEST_F(BypassRuns, ABypassedDeltaMemoryCostsNoMessages) {
  RunConfig c = config("delta-bypassed", 2);
  c.data.train = folder_ / "few";
  const auto messages = [](const TrainSummary& summary) {
    std::map<Traffic, std::uint64_t> counts;
    for (const TrafficTotal& total : summary.traffic) counts[total.traffic] = total.sent.messages;
    return std::pair(counts[Traffic::pp_activation], counts[Traffic::pp_gradient]);
  };
  const auto plain = messages(run(c));
  c.run.folder = folder_ / "delta-bypassed-2";
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta"});
  const CodecOverride whole{.is_bypassed = true};
  const CodecOverrides changes = {{Traffic::pp_activation, whole}, {Traffic::pp_gradient, whole}};
  EXPECT_EQ(messages(run(c, "none", {{0, changes}})), plain);
}

TEST_F(BypassRuns, WithoutAPreflightTheNoteSaysThatTheRateIsAtLeastThat) {
  const RunConfig c = dear("unknown");
  run_all(c, 0);
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 3U);
  for (const auto& [step, text] : said)
    EXPECT_NE(text.find("bit/s or more"), std::string::npos) << text;
}

// What was decided is not decided again, and the run is the one that never stopped.
TEST_F(BypassRuns, ARunThatGoesOnKeepsToIt) {
  const RunConfig whole = dear("whole");
  const std::string expected = model_bytes(run_all(whole, 1e12, "none", dear_costs)[0].checkpoint);
  RunConfig parts = dear("parts");
  for (const std::int64_t steps : {4, 6}) {
    parts.train.steps = steps;
    run_all(parts, steps == 4 ? 1e12 : kSlow, "auto", dear_costs);
  }
  EXPECT_EQ(notes(parts).size(), 3U);
  EXPECT_TRUE(model_bytes(parts.run.folder + "/checkpoints/step-00000006") == expected);
}

TEST_F(BypassRuns, ARunThatStoppedBeforeMeasuresAnew) {
  RunConfig c = dear("stopped");
  c.train.steps = 2;
  run_all(c, 1e12);
  EXPECT_TRUE(notes(c).empty());
  c.train.steps = 6;
  run_all(c, 1e12, "auto");
  ASSERT_EQ(notes(c).size(), 3U);
  EXPECT_EQ(notes(c)[0].first, 5);
}

TEST_F(BypassRuns, ItIsNotDecidedWhileSumsAreExact) {
  RunConfig c = dear("warm-up");
  c.dp_gradient.warmup = 3;
  run_all(c, 1e12);
  ASSERT_FALSE(notes(c).empty());
  EXPECT_EQ(notes(c)[0].first, 6);
}

}  // namespace
}  // namespace laconic
