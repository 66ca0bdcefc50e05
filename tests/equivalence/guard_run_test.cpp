// The guard in whole runs: codecs made deliberately bad are found, at the same step by all ranks;
// what follows is what the configuration could have said from there on; and neither looking nor
// shadow steps change a single bit.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>

#include "laconic/base/test_effort.hpp"
#include "laconic/steer/guarding.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

using Sets = std::vector<std::string>;

class Guarded : public PipelineParallel {
 protected:
  RunConfig guarded(const std::string& name, std::int64_t pp, std::int64_t dp, const Sets& sets) {
    RunConfig c = config(name, pp, dp);
    c.data.valid = "";
    c.train.steps = 4;
    c.steering.every = c.steering.patience = 1;
    if (dp == 3) c.train.batch = 12;
    set(c, sets);
    return c;
  }

  // What each rank ends with.
  static std::vector<TrainSummary> run_all(const RunConfig& c, const std::string& resume = "none") {
    const Problems problems = check(c);
    EXPECT_TRUE(problems.empty()) << to_text(problems);
    const int ranks = size(mesh_of(c));
    if (ranks == 1) return {train({.config = c, .start = {.resume = resume}})};
    std::vector<TrainSummary> all(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      all[static_cast<std::size_t>(transport.rank())] =
          train({.config = c, .start = {.resume = resume}, .world = &world});
      engine.flush();
      world.gather({});
      engine.flush();
    });
    return all;
  }

  // "3: pp.activation quantise:bits=2 | ..."; of all ranks, which must say the same.
  static std::string alarms_of(const std::vector<TrainSummary>& ranks) {
    std::vector<std::string> texts;
    for (const TrainSummary& summary : ranks) {
      std::string text;
      for (const Alarm& alarm : summary.guard.alarms)
        text += fmt::format("{}{}: {} {}", text.empty() ? "" : " | ", alarm.step,
                            name_of(alarm.traffic), to_text(alarm.proposed));
      texts.push_back(text);
      EXPECT_EQ(text, texts.front());
      EXPECT_EQ(summary.guard.classes, ranks.front().guard.classes);
    }
    return texts.front();
  }

  static std::vector<nlohmann::json> log_of(const RunConfig& c) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(c.run.folder + "/log.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  static std::map<std::int64_t, nlohmann::json> lines_with(const RunConfig& c, const char* key) {
    std::map<std::int64_t, nlohmann::json> found;
    for (const nlohmann::json& line : log_of(c))
      if (line.contains(key)) found[line["step"]] = line;
    return found;
  }
};

// optimus-cc is not among them: its low-rank gradients are bad by these thresholds where few of a
// step are encoded, and there it does cost something.
TEST_F(Guarded, PresetsAreGoodEnoughForTheThresholdsAsTheyAre) {
  const char* source = std::getenv("LACONIC_SOURCE");
  const std::filesystem::path presets =
      std::filesystem::path(source != nullptr ? source : ".") / "presets";
  for (const std::string preset : {"ac-sgd", "rotated", "slow-network"}) {
    RunConfig c = guarded(preset, 2, 2, {"steering.guard=watch", "steering.every=5"});
    c.model.width = 64;  // so that factors of rank 32 are shorter than some matrices
    c.train.steps = 20;
    c.steering.patience = 2;
    std::ifstream file(presets / (preset + ".toml"));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(text.empty()) << preset;
    const Problems problems = apply_toml(text, preset, c);
    ASSERT_TRUE(problems.empty()) << to_text(problems);
    const auto ranks = run_all(c);
    EXPECT_EQ(alarms_of(ranks), "") << preset;
    EXPECT_FALSE(ranks[0].guard.classes.empty()) << preset;
  }
}

// One bit for activations of all sizes: levels as far out as the largest of a block.
TEST_F(Guarded, ABadCodecIsFoundByAllRanksAtTheSameStepAndTheBitsAreRaised) {
  const Sets sets = {"pp.activation.codec=quantise:bits=1,grid=ends", "steering.guard=fallback",
                     "steering.max_error=0.5", "steering.patience=2"};
  for (const int dp : {1, 2}) {
    const std::string name = fmt::format("raised-{}", dp);
    const RunConfig c = guarded(name, 3, dp, sets);
    const auto ranks = run_all(c);
    ASSERT_EQ(alarms_of(ranks), "2: pp.activation quantise:bits=2,grid=ends");
    const Alarm& alarm = ranks[0].guard.alarms[0];
    ASSERT_EQ(alarm.crossed.size(), 1U);
    EXPECT_EQ(alarm.crossed[0].threshold, "steering.max_error");
    EXPECT_GT(alarm.crossed[0].value, 0.5);
    EXPECT_LT(ranks[0].guard.classes.at(Traffic::pp_activation).last.relative_error, 0.5);

    // The same as two steps by one bit, and two by two bits.
    RunConfig other = guarded(name + "-by-hand", 3, dp, {sets[0]});
    other.train.steps = 4;
    other.checkpoint.every = 2;
    other.checkpoint.keep = 0;
    run_all(other);
    const std::string half_way = other.run.folder + "/checkpoints/step-00000002";
    set(other, {"pp.activation.codec=quantise:bits=2,grid=ends"});
    other.run.folder = folder_ / (name + "-rest");
    const auto rest = run_all(other, half_way);
    EXPECT_EQ(model_bytes(rest[0].checkpoint), model_bytes(ranks[0].checkpoint));
    EXPECT_EQ(rest[0].loss, ranks[0].loss);
  }
}

TEST_F(Guarded, ASparseCodecThatLosesNearlyAllTravelsWholeFromThereOn) {
  for (const char* section : {"pp.activation", "pp.gradient"}) {
    const std::string bad = fmt::format("{}.codec=top_k:keep=0.001", section);
    const RunConfig c = guarded(fmt::format("whole-{}", section), 2, 1,
                                {bad, "steering.guard=fallback", "steering.every=2"});
    const auto ranks = run_all(c);
    EXPECT_EQ(alarms_of(ranks), fmt::format("2: {} bypassed", section));

    RunConfig other = guarded(fmt::format("by-hand-{}", section), 2, 1, {bad});
    other.checkpoint.every = 2;
    other.checkpoint.keep = 0;
    run_all(other);
    const std::string half_way = other.run.folder + "/checkpoints/step-00000002";
    set(other, {fmt::format("{}.codec=raw", section)});
    other.run.folder = folder_ / fmt::format("rest-{}", section);
    EXPECT_EQ(model_bytes(run_all(other, half_way)[0].checkpoint),
              model_bytes(ranks[0].checkpoint));
  }
}

// Nothing is good enough for such a threshold, so that every rung is tried.
TEST_F(Guarded, ClimbsTheWholeLadderAndIsSilentAtTheTop) {
  const struct {
    Sets sets;
    int pp, dp;
    const char* alarms;
  } rows[] = {
      {{"pp.activation.codec=quantise:bits=4", "pp.gradient.codec=sign"},
       2,
       2,
       "1: pp.activation quantise:bits=6 | 1: pp.gradient quantise:bits=4 | 2: pp.activation "
       "quantise | 2: pp.gradient quantise:bits=6 | 3: pp.activation half | 3: pp.gradient "
       "quantise | 4: pp.activation bypassed | 4: pp.gradient half | 5: pp.gradient bypassed"},
      {{"dp.gradient.codec=quantise:bits=6", "embedding.tied.codec=half"},
       2,
       2,
       "1: dp.gradient quantise | 1: embedding.tied bypassed | 2: dp.gradient half | 3: "
       "dp.gradient bypassed"},
      {{"dp.gradient.codec=sign", "dp.gradient.down=quantise:bits=8"},
       1,
       3,
       "1: dp.gradient quantise | 2: dp.gradient half | 3: dp.gradient bypassed"},
      {{"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}, 1, 2, "1: dp.gradient bypassed"},
      {{"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.codec=quantise:bits=8"},
       1,
       2,
       "1: dp.gradient half | 2: dp.gradient bypassed"},
      {{"dp.gradient.codec=random_k:keep=0.1"}, 1, 2, "1: dp.gradient bypassed"},
      {{"pp.activation.codec=quantise:bits=8", "pp.activation.memory=delta"},
       2,
       1,
       "1: pp.activation half | 2: pp.activation bypassed"}};
  int number = 0;
  for (const auto& [sets, pp, dp, alarms] : rows) {
    RunConfig c = guarded(fmt::format("ladder-{}", number++), pp, dp, sets);
    set(c, {"steering.guard=fallback", "steering.max_error=0.000001"});
    c.train.steps = 6;
    EXPECT_EQ(alarms_of(run_all(c)), alarms) << sets.front();
  }
}

TEST_F(Guarded, AGoodCodecNeverAlarmsAndLookingChangesNoBit) {
  const Sets good = {"pp.activation.codec=quantise:bits=8", "pp.gradient.codec=quantise:bits=8",
                     "dp.gradient.codec=quantise:bits=8", "embedding.tied.codec=half"};
  for (const GuardMode guard : {GuardMode::watch, GuardMode::fallback}) {
    RunConfig c = guarded(fmt::format("good-{}", name_in(kGuardModeNames, guard)), 2, 2, good);
    c.steering.guard = guard;
    c.train.steps = 6;
    const auto ranks = run_all(c);
    EXPECT_EQ(alarms_of(ranks), "");
    EXPECT_EQ(ranks[0].guard.classes.size(), 4U);
    for (const auto& [traffic, watch] : ranks[0].guard.classes) {
      EXPECT_GT(watch.worst.cosine, 0.99) << name_of(traffic);
      EXPECT_EQ(watch.measurements, 6) << name_of(traffic);
    }
    c.run.folder = folder_ / fmt::format("plain-{}", name_in(kGuardModeNames, guard));
    c.steering.guard = GuardMode::off;
    EXPECT_EQ(model_bytes(run_all(c)[0].checkpoint), model_bytes(ranks[0].checkpoint));
  }
}

TEST_F(Guarded, WatchWarnsAndDoesNothing) {
  RunConfig c =
      guarded("watch", 2, 1,
              {"pp.gradient.codec=top_k:keep=0.001", "steering.guard=watch", "steering.every=2"});
  const auto ranks = run_all(c);
  ASSERT_EQ(alarms_of(ranks), "2: pp.gradient bypassed | 4: pp.gradient bypassed");
  EXPECT_FALSE(ranks[0].guard.alarms[0].is_followed);
  const auto notes = lines_with(c, "note");
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes.at(4)["note"], to_text(ranks[0].guard.alarms[1]));
  const auto readings = lines_with(c, "guard");
  ASSERT_EQ(readings.size(), 2U);
  const auto& reading = readings.at(4)["guard"]["pp.gradient"];
  EXPECT_EQ(reading["cosine"], ranks[0].guard.classes.at(Traffic::pp_gradient).last.cosine);
  EXPECT_TRUE(reading.contains("residual_ratio_drift"));
  EXPECT_EQ(reading["residual_norm"], 0);  // nothing remembers what was lost
  const auto json = nlohmann::json::parse(to_json(ranks[0], c));
  EXPECT_EQ(json["guard"]["alarms"].size(), 2U);
  EXPECT_EQ(json["guard"]["alarms"][1]["class"], "pp.gradient");
  EXPECT_NE(to_text(ranks[0]).find("guarded"), std::string::npos);
  c.run.folder = folder_ / "unwatched";
  c.steering.guard = GuardMode::off;
  const auto plain = run_all(c);
  EXPECT_EQ(model_bytes(plain[0].checkpoint), model_bytes(ranks[0].checkpoint));
  EXPECT_EQ(to_text(plain[0]).find("guarded"), std::string::npos);
}

// Ranks that come to another judgement, here by other thresholds, do and remember what the first
// came to.
TEST_F(Guarded, WhatTheFirstRankJudgesAllDo) {
  const RunConfig strict =
      guarded("judged", 2, 2,
              {"pp.activation.codec=quantise:bits=4", "dp.gradient.codec=quantise:bits=4",
               "steering.guard=fallback", "steering.max_error=0.000001", "steering.every=2"});
  std::vector<TrainSummary> ranks(4);
  run_ranks(4, [&](Transport& transport) {
    RunConfig c = strict;
    if (transport.rank() > 0) c.steering.max_error = 1e6;
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world(mesh_of(c), progress_thread);
    ranks[static_cast<std::size_t>(transport.rank())] = train({.config = c, .world = &world});
    engine.flush();
    world.gather({});
    engine.flush();
  });
  const std::vector<std::pair<std::string, std::string>> expected = {{"dp.gradient", "quantise"},
                                                                     {"pp.activation", "quantise"}};
  for (const TrainSummary& summary : ranks) {
    EXPECT_EQ(summary.overrides, expected);
    EXPECT_EQ(summary.guard.classes, ranks[0].guard.classes);
  }
}

// The checkpoint lies between the two bad looks that make the alarm, or after the alarm.
TEST_F(Guarded, AResumedRunGoesOnWithPatienceAndTreatmentBitForBit) {
  const struct {
    Sets sets;
    int pp, dp;
  } rows[] = {{{"pp.activation.codec=quantise:bits=1,grid=ends"}, 2, 1},
              {{"dp.gradient.codec=sign", "steering.max_error=0.001"}, 1, 2},
              {{"dp.gradient.codec=quantise:bits=4", "pp.gradient.codec=quantise:bits=4",
                "pp.gradient.memory=feedback", "steering.max_error=0.001"},
               2,
               2}};
  int number = 0;
  for (const auto& [sets, pp, dp] : rows) {
    RunConfig c = guarded(fmt::format("straight-{}", number), pp, dp, sets);
    set(c, {"steering.guard=fallback", "steering.every=2", "steering.patience=2"});
    c.train.steps = 8;
    c.checkpoint.every = 1;
    c.checkpoint.keep = 0;
    const auto straight = run_all(c);
    ASSERT_FALSE(straight[0].guard.alarms.empty());
    EXPECT_EQ(straight[0].guard.alarms[0].step, 4);
    for (const int stop : {2, 3, 4, 5}) {
      RunConfig rest = c;
      rest.run.folder = folder_ / fmt::format("rest-{}-{}", number, stop);
      const auto resumed =
          run_all(rest, fmt::format("{}/checkpoints/step-{:08}", c.run.folder, stop));
      EXPECT_EQ(model_bytes(resumed[0].checkpoint), model_bytes(straight[0].checkpoint))
          << sets.front() << ", resumed after " << stop;
      EXPECT_EQ(resumed[0].guard.classes, straight[0].guard.classes);
    }
    ++number;
  }
}

// --- shadows

TEST_F(Guarded, AStepWithAShadowIsTheSameBitForBit) {
  struct Row {
    Sets sets;
    int pp, dp;
  };
  const std::vector<Row> rows = {
      {{}, 1, 1},
      {{"pp.activation.codec=quantise:bits=2", "pp.gradient.codec=quantise:bits=2"}, 3, 1},
      {{"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
        "pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
        "pipeline.schedule=zero_bubble"},
       2,
       1},
      {{"pp.gradient.codec=top_k:keep=0.1", "pp.gradient.memory=feedback",
        "pipeline.schedule=gpipe"},
       2,
       1},
      {{"pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback",
        "pp.gradient.reset=true"},
       2,
       1},
      {{"dp.gradient.codec=quantise:bits=2"}, 1, 2},
      {{"dp.gradient.codec=top_k:keep=0.01", "dp.gradient.overlap=false"}, 1, 3},
      {{"dp.gradient.codec=random_k:keep=0.1", "dp.gradient.warmup=2"}, 1, 2},
      {{"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}, 1, 2},
      {{"dp.gradient.method=power_sgd", "dp.gradient.rank=1", "dp.gradient.warmup=2",
        "dp.gradient.by_block=true"},
       1,
       2},
      {{"dp.gradient.codec=sign", "pp.activation.codec=quantise:bits=3",
        "pp.activation.memory=delta", "embedding.tied.codec=quantise:bits=4",
        "pp.gradient.codec=quantise:bits=3", "pp.gradient.memory=feedback",
        "pp.gradient.when=epilogue"},
       2,
       2},
      {{"dp.gradient.codec=quantise:bits=4", "embedding.tied.fused=false",
        "embedding.tied.codec=half", "pipeline.schedule=interleaved", "pipeline.chunks=2"},
       2,
       2}};
  int number = 0;
  for (const auto& [sets, pp, dp] : some_of(rows, 2)) {
    RunConfig c = guarded(fmt::format("shadow-{}", number), pp, dp, sets);
    c.data.train = folder_ / "few";
    c.train.steps = 6;
    const std::string where = sets.empty() ? "alone" : sets.front();
    c.steering.shadow = 2;
    const auto ranks = run_all(c);
    c.run.folder = folder_ / fmt::format("plain-{}", number++);
    c.steering.shadow = 0;
    const auto plain = run_all(c);
    EXPECT_EQ(model_bytes(plain[0].checkpoint), model_bytes(ranks[0].checkpoint)) << where;
    EXPECT_FALSE(plain[0].guard.shadow);
    for (const TrainSummary& summary : ranks) {
      ASSERT_TRUE(summary.guard.shadow) << where;
      EXPECT_EQ(summary.guard.shadow, ranks[0].guard.shadow) << where;
      EXPECT_EQ(summary.guard.shadow->step, 6);
      if (sets.empty())
        EXPECT_NEAR(summary.guard.shadow->cosine, 1, 1e-12);
      else
        EXPECT_LT(summary.guard.shadow->cosine, 1 - 1e-8) << where;
    }
  }
}

// At the first step both runs have the same parameters: the shadow is a step of the other.
TEST_F(Guarded, AShadowIsTheStepOfARunThatLosesNothing) {
  const struct {
    Sets sets;
    int pp, dp;
  } rows[] = {{{"pp.activation.codec=quantise:bits=2", "pp.gradient.codec=sign"}, 3, 1},
              {{"dp.gradient.codec=quantise:bits=2"}, 1, 2},
              {{"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}, 1, 2},
              {{"dp.gradient.codec=top_k:keep=0.05", "pp.activation.codec=quantise:bits=2",
                "embedding.tied.codec=sign"},
               2,
               2}};
  int number = 0;
  for (const auto& [sets, pp, dp] : rows) {
    RunConfig c = guarded(fmt::format("lossy-{}", number), pp, dp, sets);
    set(c, {"train.steps=1", "optimiser.warmup=1", "steering.shadow=1"});
    run_all(c);
    RunConfig exact =
        guarded(fmt::format("exact-{}", number++), pp, dp, {"train.steps=1", "optimiser.warmup=1"});
    run_all(exact);
    const auto lossy_step = lines_with(c, "loss").at(1),
               exact_step = lines_with(exact, "loss").at(1);
    const auto shadow = lines_with(c, "guard").at(1)["guard"]["step"];
    EXPECT_EQ(shadow["loss_difference"].get<double>(),
              lossy_step["loss"].get<double>() - exact_step["loss"].get<double>())
        << sets.front();
    const double ratio =
        lossy_step["grad_norm"].get<double>() / exact_step["grad_norm"].get<double>();
    EXPECT_NEAR(shadow["norm_ratio"].get<double>(), ratio, 1e-6 * ratio) << sets.front();
  }
}

// What is outstanding belongs to the step, not to its shadow: without losses nothing would be.
TEST_F(Guarded, AShadowPaysNoResiduals) {
  RunConfig c = guarded("owing", 1, 2, {"dp.gradient.codec=top_k:keep=0.01", "train.steps=3"});
  c.checkpoint.every = 2;
  c.checkpoint.keep = 0;
  run_all(c);
  const std::string half_way = c.run.folder + "/checkpoints/step-00000002";
  c.run.folder = folder_ / "with-shadow";
  c.steering.shadow = 3;
  run_all(c, half_way);
  RunConfig exact = guarded("exact", 1, 2, {"train.steps=3"});
  run_all(exact, half_way);  // drops residuals, which are none of an exact sum
  const auto shadow = lines_with(c, "guard").at(3)["guard"]["step"];
  const double ratio = lines_with(c, "loss").at(3)["grad_norm"].get<double>() /
                       lines_with(exact, "loss").at(3)["grad_norm"].get<double>();
  EXPECT_NEAR(shadow["norm_ratio"].get<double>(), ratio, 1e-6 * ratio);
}

// --- what cannot be

TEST_F(Guarded, WhatCannotBeWatchedIsRefused) {
  const struct {
    Sets sets;
    const char* where;
  } rows[] = {{{"local.steps=2", "steering.shadow=2"}, "steering.shadow"},
              {{"local.steps=2", "steering.guard=watch", "steering.every=3"}, "steering.every"},
              {{"dp.gradient.method=compressed_adam", "dp.gradient.warmup=1", "steering.shadow=2"},
               "steering.shadow"}};
  for (const auto& [sets, where] : rows) {
    const Problems problems = check(guarded("refused", 1, 2, sets));
    ASSERT_EQ(problems.size(), 1U) << to_text(problems);
    EXPECT_EQ(problems[0].where, where);
  }
}

TEST_F(Guarded, LocalStepsAndMomentsAreWatchedWhereTheyTravel) {
  const struct {
    Sets sets;
    std::int64_t looks;
  } rows[] = {{{"local.steps=2", "steering.every=2", "dp.gradient.codec=quantise:bits=8"}, 2},
              {{"dp.gradient.method=compressed_adam", "dp.gradient.warmup=1",
                "dp.gradient.codec=quantise:bits=8"},
               3}};
  int number = 0;
  for (const auto& [sets, looks] : rows) {
    RunConfig c = guarded(fmt::format("rules-{}", number++), 1, 2, sets);
    c.steering.guard = GuardMode::fallback;
    const auto ranks = run_all(c);
    EXPECT_EQ(alarms_of(ranks), "");
    ASSERT_EQ(ranks[0].guard.classes.size(), 1U);
    EXPECT_EQ(ranks[0].guard.classes.at(Traffic::dp_gradient).measurements, looks);
  }
}

TEST(RungAbove, IsAboveBothWaysOfASumAndCanBe) {
  RunConfig c;
  c.mesh.dp = 2;
  const auto rung = [&](const char* up, const char* down, const CodecOverride& now = {}) {
    c.dp_gradient.codec = up;
    c.dp_gradient.down = down;
    return to_text(rung_above(c, Traffic::dp_gradient, now));
  };
  EXPECT_EQ(rung("quantise:bits=4", ""), "quantise:bits=6");
  EXPECT_EQ(rung("quantise:bits=2", "quantise:bits=6"), "quantise:bits=6");
  EXPECT_EQ(rung("raw", "quantise:bits=2"), "quantise:bits=3");
  EXPECT_EQ(rung("sign", "half"), "half");
  EXPECT_EQ(rung("sign", "", {.codec = parse_codec("quantise:bits=4")}), "quantise:bits=6");
  EXPECT_EQ(rung("top_k:keep=0.1", "half"), "bypassed");
  // No quantiser can stand in for what it does not fit: sums of random_k are passed on as they are,
  // and raw ones lose nothing.
  const CodecOverride quantised{.codec = parse_codec("quantise:bits=2")};
  EXPECT_EQ(rung("random_k:keep=0.1", "", quantised), "bypassed");
  EXPECT_EQ(rung("raw", "", quantised), "bypassed");
}

}  // namespace
}  // namespace laconic
