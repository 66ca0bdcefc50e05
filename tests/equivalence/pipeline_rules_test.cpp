// Update rules over meshes: selected stages, norms, and what a checkpoint keeps of them.
#include <fmt/ranges.h>

#include "laconic/base/error.hpp"
#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

bool has_residual(const RankTensors& tensors, const std::string& prefix = "gradient.") {
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) return true;
  return false;
}

const std::vector<std::vector<std::string>> kEncoded = {
    {"dp.gradient.codec=quantise:bits=2"}, {"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}};

std::vector<std::string> with(std::vector<std::string> sets, const std::string& set) {
  sets.push_back(set);
  return sets;
}

TEST(SelectiveStages, OthersSumExactlyAndRememberNothing) {
  const Mesh mesh{.pp = 3, .dp = 2};
  const auto plain = run_rules({mesh, config_for(mesh)});
  for (const auto& sets : kEncoded)
    for (int k = 0; k <= mesh.pp; ++k) {
      const auto ranks = run_rules(
          {mesh, config_for(mesh, with(sets, fmt::format("dp.gradient.stages=\"{}\"", k)))});
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const Ended& rank = ranks[r];
        SCOPED_TRACE(fmt::format("{}, k = {}, {}", sets.front(), k, to_text(rank.coord)));
        bool is_exact = true;
        for (const auto& [number, gradient] : rank.gradients)
          is_exact &= gradient.equal(plain[r].gradients.at(number));
        EXPECT_EQ(is_exact, rank.coord.pp >= k);
        EXPECT_EQ(has_residual(rank.saved), rank.coord.pp < k);
      }
    }
}

TEST(SelectiveStages, AFractionAndAutoAreNumbersOfStages) {
  const Mesh mesh{.pp = 4, .dp = 2};
  const auto& sets = kEncoded.front();
  const auto three = run_rules({mesh, config_for(mesh, with(sets, "dp.gradient.stages=\"3\"")), 2});
  const auto share =
      run_rules({mesh, config_for(mesh, with(sets, "dp.gradient.stages=\"0.75\"")), 2});
  RuleRun automatic{mesh, config_for(mesh, with(sets, "dp.gradient.stages=\"auto\"")), 2};
  automatic.automatic = 3;
  const auto chosen = run_rules(automatic);
  for (std::size_t r = 0; r < three.size(); ++r) {
    expect_same_tensors(three[r].values, share[r].values, "0.75");
    expect_same_tensors(three[r].values, chosen[r].values, "auto");
  }
}

TEST(PipelineRules, PlainSumsGoInARingUnlessTheUserSaysOtherwise) {
  const Mesh mesh{.pp = 4, .dp = 2};
  using enum SumAlgorithm;
  const struct {
    std::vector<std::string> sets;
    SumAlgorithm first, last, tied;  // stages, and the embedding
  } rows[] = {{{}, ring, ring, ring},
              {{"dp.gradient.algorithm=direct"}, direct, direct, direct},
              {{"dp.gradient.codec=sign"}, direct, ring, ring},
              {{"dp.gradient.method=power_sgd"}, direct, ring, ring},
              {{"embedding.tied.codec=half"}, ring, ring, direct},
              {{"embedding.tied.codec=half", "dp.gradient.algorithm=ring"}, ring, ring, direct}};
  for (const auto& [sets, first, last, tied] : rows) {
    const RunConfig config = config_for(mesh, sets);
    const std::string where = fmt::format("{}", fmt::join(sets, " "));
    EXPECT_EQ(policy_of(config, {0, 1}).algorithm, first) << where;
    EXPECT_EQ(policy_of(config, {1, 1}).algorithm, last) << where;
    EXPECT_EQ(shared_policy_of(config).algorithm, tied) << where;
  }
}

TEST(PipelineRules, WhatCannotBeIsRefusedByKey) {
  const struct {
    std::vector<std::string> sets;
    const char* where;
  } rows[] = {
      {{"dp.gradient.algorithm=native"}, "dp.gradient.algorithm"},
      {{"embedding.tied.codec=low_rank:rank=4"}, "embedding.tied.codec"},
      {{"dp.gradient.method=compressed_adam", "dp.gradient.warmup=1", "embedding.tied.fused=false"},
       "embedding.tied.fused"},
      {{"local.steps=2", "embedding.tied.codec=half"}, "embedding.tied.codec"}};
  for (const auto& [sets, where] : rows) {
    const Problems problems = check_parallel(config_for({.pp = 4, .dp = 2}, sets));
    ASSERT_EQ(problems.size(), 1U) << sets.front() << "\n" << to_text(problems);
    EXPECT_EQ(problems[0].where, where);
  }
  EXPECT_TRUE(check_parallel(config_for({.pp = 4, .dp = 2})).empty());
}

TEST(PipelineRules, TheNormIsTheSameBitsOnEveryMeshWithTheSameGradients) {
  for (int dp = 1; dp <= 3; ++dp) {
    std::optional<std::vector<Measured>> expected;
    for (int pp = 1; pp <= 4; ++pp) {
      const Mesh mesh{.pp = pp, .dp = dp};
      const auto ranks = run_rules(
          {mesh, config_for(mesh, {"dp.gradient.algorithm=direct"}), 3, tied_whole_gradient});
      if (!expected) expected = ranks[0].measured;
      for (const Ended& rank : ranks)
        for (std::size_t s = 0; s < 3; ++s) {
          EXPECT_EQ(rank.measured[s].norm, (*expected)[s].norm) << to_text(mesh) << ", step " << s;
          EXPECT_EQ(rank.measured[s].loss, (*expected)[s].loss) << to_text(mesh);
        }
    }
  }
}

// In double, where the order of sums is no matter of bits.
TEST(PipelineRules, EveryMeshMakesTheUpdatesOfOneProcess) {
  const auto whole = [](const Parameter& p, std::int64_t step, int, End end) {
    return random_gradient(p, step, 0, end);
  };
  const auto alone = run_rules({{}, config_for({}, {"run.precision=float64"}), 3, whole});
  for (const Mesh& mesh :
       {Mesh{.pp = 2, .dp = 2}, Mesh{.pp = 4, .dp = 3}, Mesh{.pp = 1, .dp = 3}}) {
    const GradientOf share = [&](const Parameter& p, std::int64_t step, int replica, End end) {
      const double weight = 2.0 * (replica + 1) / (mesh.dp * (mesh.dp + 1));
      return whole(p, step, replica, end).mul_(weight);
    };
    const auto ranks = run_rules({mesh, config_for(mesh, {"run.precision=float64"}), 3, share});
    for (const Ended& rank : ranks)
      for (const auto& [number, value] : rank.values)
        EXPECT_LT(value.sub(alone[0].values.at(number)).abs().max().item<double>(), 1e-12)
            << to_text(mesh) << ", parameter " << number;
  }
}

// What the rules that do not sum gradients make of them does not depend on the parts either. The
// norm of compressed_adam does (the ends count one by one), so nothing is clipped.
TEST(PipelineRules, MomentsAndChangesAreSummedAsWithoutAPipeline) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"dp.gradient.method=compressed_adam", "dp.gradient.warmup=2"}, {"local.steps=2"}}) {
    const auto config = [&](const Mesh& mesh) {
      RunConfig c = config_for(mesh, with(sets, "run.precision=float64"));
      c.train.clip = 1e9;
      return c;
    };
    for (int dp = 2; dp <= 3; ++dp) {
      const Mesh flat{.dp = dp};
      const auto expected = run_rules({flat, config(flat), 6});
      for (int pp = 2; pp <= 4; ++pp) {
        const Mesh mesh{.pp = pp, .dp = dp};
        for (const Ended& rank : run_rules({mesh, config(mesh), 6}))
          for (const auto& [number, value] : rank.values)
            EXPECT_LT(value.sub(expected[0].values.at(number)).abs().max().item<double>(), 1e-12)
                << sets.front() << ", " << to_text(mesh) << ", parameter " << number;
      }
    }
  }
}

TEST(PipelineRules, LocalUpdatesOfAPipelineHaveTheNormOfTheirReplica) {
  const Mesh flat{.dp = 2};
  const auto expected = run_rules({flat, config_for(flat, {"local.steps=4"}), 4});
  for (int pp = 2; pp <= 4; ++pp) {
    const Mesh mesh{.pp = pp, .dp = 2};
    for (const Ended& rank : run_rules({mesh, config_for(mesh, {"local.steps=4"}), 4}))
      for (std::size_t s = 0; s < 4; ++s) {
        const Measured& whole = expected[static_cast<std::size_t>(rank.coord.dp)].measured[s];
        EXPECT_EQ(rank.measured[s].norm, whole.norm) << to_text(mesh) << ", step " << s;
        EXPECT_EQ(rank.measured[s].loss, whole.loss) << to_text(mesh) << ", step " << s;
      }
  }
}

const std::vector<std::vector<std::string>> kRemembering = {
    {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=quantise:bits=3"},
    {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=top_k:keep=0.1",
     "embedding.tied.fused=false", "dp.gradient.stages=\"1\""},
    {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "embedding.tied.codec=sign"},
    {"dp.gradient.method=compressed_adam", "dp.gradient.codec=sign", "dp.gradient.warmup=1",
     "embedding.tied.codec=quantise:bits=4"},
    {"local.steps=2", "local.outer_lr=0.7", "local.outer_momentum=0.9",
     "dp.gradient.codec=quantise:bits=4"}};

TEST(PipelineRules, ARunThatIsResumedIsTheOneThatNeverStopped) {
  for (const Mesh& mesh : {Mesh{.pp = 2, .dp = 2}, Mesh{.pp = 3, .dp = 2}})
    for (const auto& sets : kRemembering) {
      SCOPED_TRACE(to_text(mesh) + ": " + fmt::format("{}", fmt::join(sets, " ")));
      const RunConfig config = config_for(mesh, sets);
      const auto whole = run_rules({mesh, config, 6});
      RuleRun second{mesh, config, 2};
      second.first_step = 4;
      second.from = run_rules({mesh, config, 4});
      const auto parts = run_rules(second);
      for (std::size_t r = 0; r < parts.size(); ++r) {
        EXPECT_EQ(parts[r].note, "");
        expect_same_tensors(whole[r].values, parts[r].values, to_text(parts[r].coord));
      }
    }
}

const CodecOverride kBypassed{.is_bypassed = true};

// With nothing owed yet the updates are those of a run that never encodes.
TEST(TreatedRules, BypassedFromTheBeginningTheyAreThePlainOnes) {
  for (const Mesh& mesh : {Mesh{.dp = 3}, Mesh{.pp = 2, .dp = 2}}) {
    const auto plain = run_rules({mesh, config_for(mesh), 4});
    for (const auto& sets : std::vector<std::vector<std::string>>{
             {"dp.gradient.codec=quantise:bits=2", "embedding.tied.codec=sign"},
             {"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}}) {
      RuleRun run{mesh, config_for(mesh, sets), 4};
      for (const Traffic traffic : {Traffic::dp_gradient, Traffic::embedding_tied})
        run.changes.push_back({0, traffic, kBypassed});
      const auto ranks = run_rules(run);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        SCOPED_TRACE(to_text(mesh) + sets.front() + to_text(ranks[r].coord));
        expect_same_tensors(plain[r].values, ranks[r].values, "values");
        EXPECT_FALSE(has_residual(ranks[r].saved));
      }
    }
  }
}

TEST(TreatedRules, MomentsAndChangesTravelWholeToo) {
  const Mesh mesh{.dp = 2};
  const std::pair<const char*, std::vector<std::string>> rows[] = {
      {"dp.gradient.codec=sign", {"dp.gradient.method=compressed_adam", "dp.gradient.warmup=1"}},
      {"dp.gradient.codec=quantise:bits=2", {"local.steps=2"}}};
  for (const auto& [codec, sets] : rows) {
    const auto plain = run_rules({mesh, config_for(mesh, with(sets, "dp.gradient.codec=raw")), 6});
    RuleRun run{mesh, config_for(mesh, with(sets, codec)), 6};
    const auto encoded = run_rules(run);
    run.changes = {{0, Traffic::dp_gradient, kBypassed}};
    const auto whole = run_rules(run);
    expect_same_tensors(plain[0].values, whole[0].values, codec);
    EXPECT_FALSE(encoded[0].values.at(0).equal(whole[0].values.at(0))) << codec;
  }
}

// Replicas and ends stay together, and a run that is resumed on either side of the change is the
// one that never stopped.
TEST(TreatedRules, AreResumedAcrossAChange) {
  const CodecOverride finer{.codec = parse_codec("quantise:bits=6")};
  for (const auto& sets : std::vector<std::vector<std::string>>{
           {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=quantise:bits=3"},
           {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.codec=sign",
            "embedding.tied.codec=sign"},
           {"dp.gradient.method=compressed_adam", "dp.gradient.codec=sign", "dp.gradient.warmup=1",
            "embedding.tied.codec=quantise:bits=4"}})
    for (const std::int64_t stop : {2, 3, 4}) {
      const Mesh mesh{.pp = 2, .dp = 2};
      SCOPED_TRACE(fmt::format("{}, stopped at {}", fmt::join(sets, " "), stop));
      const std::vector<RuleRun::Change> changes = {{1, Traffic::dp_gradient, finer},
                                                    {3, Traffic::dp_gradient, kBypassed},
                                                    {3, Traffic::embedding_tied, finer},
                                                    {5, Traffic::dp_gradient, {}}};
      RuleRun whole{mesh, config_for(mesh, sets), 7};
      whole.changes = changes;
      const auto expected = run_rules(whole);
      expect_lock_step(expected);
      RuleRun first{mesh, whole.config, stop}, second{mesh, whole.config, 7 - stop};
      first.changes = second.changes = changes;
      second.first_step = stop;
      second.from = run_rules(first);
      const auto resumed = run_rules(second);
      for (std::size_t r = 0; r < resumed.size(); ++r)
        expect_same_tensors(expected[r].values, resumed[r].values, to_text(resumed[r].coord));
    }
}

// Over all ranks and elements, what sums still owe: those of blocks, and the tied one.
double outstanding(const std::vector<Ended>& ranks, const std::string& prefix) {
  double total = 0;
  for (const Ended& rank : ranks)
    for (const auto& [name, tensor] : rank.saved)
      if (name.starts_with(prefix) && !name.ends_with(".basis"))
        total += tensor.to(at::kDouble).sum().item<double>();
  return total;
}

// Loads and saves again, without a step between.
std::vector<Ended> reloaded(const Mesh& mesh, const RunConfig& config,
                            const std::vector<Ended>& from) {
  RuleRun run{mesh, config, 0};
  run.first_step = 4;
  run.from = from;
  return run_rules(run);
}

TEST(PipelineRules, WithMoreOrFewerReplicasEachStageKeepsWhatItOwes) {
  for (const auto& sets : {kRemembering[0], kRemembering[2]}) {
    const Mesh before{.pp = 3, .dp = 2};
    const auto from = run_rules({before, config_for(before, sets), 4});
    ASSERT_NE(outstanding(from, "gradient."), 0);
    ASSERT_NE(outstanding(from, "tied.gradient."), 0);
    for (const int dp : {1, 3, 4}) {
      const Mesh mesh{.pp = 3, .dp = dp};
      const auto ranks = reloaded(mesh, config_for(mesh, sets), from);
      for (const Ended& rank : ranks) EXPECT_EQ(rank.note, "") << to_text(mesh);
      for (const char* prefix : {"gradient.", "tied.gradient."})
        EXPECT_NEAR(outstanding(ranks, prefix), outstanding(from, prefix), 1e-5)
            << to_text(mesh) << ", " << prefix;
      RuleRun on{mesh, config_for(mesh, sets), 2};
      on.first_step = 4;
      on.from = from;
      expect_lock_step(run_rules(on));
    }
  }
}

TEST(PipelineRules, PairsOfAllReplicasGoOnAlikeWithAnotherNumberOfThem) {
  const Mesh before{.pp = 3, .dp = 2}, mesh{.pp = 3, .dp = 3};
  const auto from = run_rules({before, config_for(before, kRemembering[1]), 4});
  const auto ranks = reloaded(mesh, config_for(mesh, kRemembering[1]), from);
  int compared = 0;
  for (int dp = 0; dp < 3; ++dp)
    for (const int pp : {0, 2}) {
      const auto& expected = rank_at(from, before, pp, 0).saved;
      for (const auto& [name, tensor] : rank_at(ranks, mesh, pp, dp).saved)
        if (name.starts_with("tied.")) {
          EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
          ++compared;
        }
    }
  EXPECT_GE(compared, 6);
}

TEST(PipelineRules, WithAnotherNumberOfStagesResidualsAreDroppedAndANoteSaysSo) {
  const Mesh before{.pp = 3, .dp = 2};
  const auto from = run_rules({before, config_for(before, kRemembering[0]), 4});
  for (const Mesh& mesh : {Mesh{.pp = 2, .dp = 2}, Mesh{.pp = 1, .dp = 2}, Mesh{.pp = 4, .dp = 3},
                           Mesh{.pp = 1, .dp = 1}})
    for (const Ended& rank : reloaded(mesh, config_for(mesh, kRemembering[0]), from)) {
      EXPECT_EQ(rank.note, fmt::format("residuals of the checkpoint are those of mesh.pp = 3, and "
                                       "this run has {}: dropped",
                                       mesh.pp));
      EXPECT_FALSE(has_residual(rank.saved));
      EXPECT_FALSE(has_residual(rank.saved, "tied."));
    }
}

// Files of runs without a pipeline say nothing about their mesh.
TEST(PipelineRules, AMeshThatIsNotThereIsOneStage) {
  const Mesh before{.dp = 2};
  const auto from = run_rules({before, config_for(before, kRemembering[0]), 4});
  for (const Ended& rank : from) EXPECT_FALSE(rank.saved.contains("mesh"));
  const auto same = reloaded(before, config_for(before, kRemembering[0]), from);
  for (std::size_t r = 0; r < same.size(); ++r) {
    EXPECT_EQ(same[r].note, "");
    for (const auto& [name, tensor] : from[r].saved)
      EXPECT_TRUE(same[r].saved.at(name).equal(tensor)) << name;
  }
  for (const Ended& rank : reloaded({.pp = 2, .dp = 1}, config_for({.pp = 2, .dp = 1}), from))
    EXPECT_NE(rank.note.find("mesh.pp = 1, and this run has 2: dropped"), std::string::npos);
}

TEST(PipelineRules, ALackOfRankFilesIsRefused) {
  const Mesh mesh{.pp = 2, .dp = 2};
  const auto from = run_rules({mesh, config_for(mesh, kRemembering[0]), 2});
  RuleRun run{mesh, config_for(mesh, kRemembering[0]), 0};
  run.from = from;
  for (int r = 0; r < 3; ++r) run.saved.push_back(from[static_cast<std::size_t>(r)].saved);
  EXPECT_THROW(run_rules(run), ConfigError);
}

TEST(PipelineRules, MomentsOfLocalUpdatesFindTheirWayToAnyMesh) {
  const auto& sets = kRemembering[4];
  const Mesh before{.pp = 2, .dp = 2};
  const auto from = run_rules({before, config_for(before, sets), 4});
  for (const Mesh& mesh : {Mesh{.pp = 3, .dp = 2}, Mesh{.pp = 1, .dp = 2}}) {
    const auto ranks = reloaded(mesh, config_for(mesh, sets), from);
    for (const Ended& rank : ranks)
      for (const auto& [number, moment] : rank.moment1) {
        const Ended* holder = nullptr;
        for (const Ended& old : from)
          if (old.coord.dp == rank.coord.dp && old.values.contains(number)) holder = &old;
        ASSERT_NE(holder, nullptr);
        EXPECT_TRUE(moment.equal(holder->moment1.at(number))) << to_text(mesh) << ", " << number;
      }
  }
}

}  // namespace
}  // namespace laconic::test
