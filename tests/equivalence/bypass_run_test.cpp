// steering.bypass = "auto" in whole runs: what is decided, that all ranks do, and that it lasts.
#include <nlohmann/json.hpp>

#include "laconic/transport/shaped.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class BypassRuns : public PipelineParallel {
 protected:
  // Four ranks whose codecs are dear: factors of small matrices, in every class but one.
  RunConfig dear(const std::string& name) {
    RunConfig c = config(name, 2, 2);
    c.train.steps = 6;
    c.optimiser.decay_steps = 6;
    c.steering.bypass = "auto";
    c.steering.after = 2;
    set(c, {"pp.activation.codec=low_rank:rank=8", "pp.gradient.codec=low_rank:rank=8",
            "dp.gradient.method=power_sgd", "dp.gradient.rank=8"});
    return c;
  }

  // The summaries of all ranks. `rate`: what a pre-flight would have found, in bytes a second.
  static std::vector<TrainSummary> run_all(const RunConfig& c, double rate,
                                           const std::string& resume = "none") {
    const int ranks = size(mesh_of(c));
    std::vector<TrainSummary> summaries(static_cast<std::size_t>(ranks));
    std::vector<std::unique_ptr<Transport>> transports = make_in_process(ranks);
    if (!c.network.shape.empty())
      for (std::unique_ptr<Transport>& transport : transports)
        transport = make_shaped(std::move(transport), parse_shape(c.network.shape));
    run_ranks(transports, [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(60)});
      Courier courier(engine);
      World world(mesh_of(c), courier);
      summaries[static_cast<std::size_t>(transport.rank())] =
          train({.config = c,
                 .start = {.resume = resume},
                 .world = &world,
                 .link = {.bytes_per_second = rate, .slowest_bytes_per_second = rate}});
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
  const auto summaries = run_all(c, 1e12);
  const Said expected = {
      {"dp.gradient", "bypassed"}, {"pp.activation", "bypassed"}, {"pp.gradient", "bypassed"}};
  for (const TrainSummary& summary : summaries) EXPECT_EQ(summary.treatments, expected);
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 3U);
  for (const auto& [step, text] : said) {
    EXPECT_EQ(step, 3);  // the first is not counted, two are
    EXPECT_TRUE(text.starts_with("bypass: ")) << text;
    EXPECT_NE(text.find("travels whole"), std::string::npos) << text;
  }
  EXPECT_NE(to_json(summaries[0], c).find("\"dp.gradient\": \"bypassed\""), std::string::npos);
}

TEST_F(BypassRuns, OnASlowNetworkEverythingStaysEncoded) {
  RunConfig c = dear("slow");
  c.train.steps = 3;
  c.network.shape = "rate=10mbit";
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.gradient.codec=quantise:bits=4",
          "dp.gradient.method=codec", "dp.gradient.codec=quantise:bits=4"});
  for (const TrainSummary& summary : run_all(c, 10e6 / 8)) EXPECT_EQ(summary.treatments, Said());
  const auto said = notes(c);
  ASSERT_EQ(said.size(), 3U);
  for (const auto& [step, text] : said)
    EXPECT_NE(text.find("stays encoded: encoding costs"), std::string::npos) << text;
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
  const std::string expected = model_bytes(run_all(whole, 1e12)[0].checkpoint);
  RunConfig parts = dear("parts");
  for (const std::int64_t steps : {4, 6}) {
    parts.train.steps = steps;
    run_all(parts, steps == 4 ? 1e12 : 1, "auto");
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
  EXPECT_EQ(notes(c)[0].first, 5);
}

}  // namespace
}  // namespace laconic
