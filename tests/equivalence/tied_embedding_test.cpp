// The tied embedding over both ends of a pipeline, fused with the sum over replicas and not.
#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

const std::vector<Mesh> kPipelines = {{.pp = 2, .dp = 1}, {.pp = 2, .dp = 2}, {.pp = 2, .dp = 3},
                                      {.pp = 3, .dp = 2}, {.pp = 4, .dp = 1}, {.pp = 4, .dp = 3}};

const std::string kUnfused = "embedding.tied.fused=false";
const std::string kInRankOrder = "dp.gradient.algorithm=direct";

// The sum by hand: first all of one end in the order of replicas, then `join`.
at::Tensor tied_gradient(int replica, End end, const GradientOf& gradient) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kFloat));
  return gradient(weights.parameters[0], 0, replica, end);
}
at::Tensor sum_at(End end, int dp, const GradientOf& gradient) {
  at::Tensor sum = tied_gradient(0, end, gradient);
  for (int d = 1; d < dp; ++d) sum.add_(tied_gradient(d, end, gradient));
  return sum;
}

const at::Tensor& tied_sum(const std::vector<Ended>& ranks) {
  return ranks.front().gradients.at(0);
}

TEST(TiedEmbedding, FusedAndUnfusedAreTheSameBitsForWholeNumbers) {
  for (const Mesh& mesh : kPipelines) {
    SCOPED_TRACE(to_text(mesh));
    const auto fused = run_rules({mesh, config_for(mesh), 3, tied_whole_gradient});
    const auto unfused =
        run_rules({mesh, config_for(mesh, {kUnfused, kInRankOrder}), 3, tied_whole_gradient});
    const auto direct = run_rules({mesh, config_for(mesh, {kInRankOrder}), 3, tied_whole_gradient});
    for (std::size_t r = 0; r < fused.size(); ++r) {
      const std::string where = to_text(fused[r].coord);
      expect_same_tensors(direct[r].values, unfused[r].values, where);
      EXPECT_EQ(direct[r].measured.back().norm, unfused[r].measured.back().norm);
      if (fused[r].values.contains(0)) {
        EXPECT_TRUE(fused[r].gradients.at(0).equal(unfused[r].gradients.at(0))) << where;
      }
    }
  }
}

TEST(TiedEmbedding, ForRandomNumbersTheyDifferByAFewRoundings) {
  for (const Mesh& mesh : kPipelines) {
    SCOPED_TRACE(to_text(mesh));
    const at::Tensor fused = tied_sum(run_rules({mesh, config_for(mesh)}));
    const at::Tensor unfused = tied_sum(run_rules({mesh, config_for(mesh, {kUnfused})}));
    const at::Tensor exact = sum_at(End::embedding, mesh.dp, random_gradient)
                                 .to(at::kDouble)
                                 .add_(sum_at(End::head, mesh.dp, random_gradient));
    for (const at::Tensor& sum : {fused, unfused})
      EXPECT_LT(sum.to(at::kDouble).sub_(exact).abs().max().item<double>(), 4e-7);
    EXPECT_GT(exact.abs().max().item<double>(), 0.2);
  }
}

TEST(TiedEmbedding, SumsAreInTheOrderThatIsPromised) {
  for (const Mesh& mesh : kPipelines) {
    SCOPED_TRACE(to_text(mesh));
    const at::Tensor unfused =
        tied_sum(run_rules({mesh, config_for(mesh, {kUnfused, kInRankOrder})}));
    EXPECT_TRUE(unfused.equal(sum_at(End::embedding, mesh.dp, random_gradient)
                                  .add_(sum_at(End::head, mesh.dp, random_gradient))));
    const at::Tensor fused = tied_sum(run_rules({mesh, config_for(mesh, {kInRankOrder})}));
    at::Tensor expected = sum_at(End::embedding, mesh.dp, random_gradient);
    for (int d = 0; d < mesh.dp; ++d) expected.add_(tied_gradient(d, End::head, random_gradient));
    EXPECT_TRUE(fused.equal(expected));
  }
}

TEST(TiedEmbedding, OneReplicaInAnyNumberOfPartsTrainsTheModelOfOneProcessBitForBit) {
  const auto alone = run_rules({{}, config_for({}), 4});
  for (int pp = 2; pp <= 6; ++pp)
    for (const char* fused : {"true", "false"}) {
      SCOPED_TRACE(fmt::format("pp {}, fused {}", pp, fused));
      const Mesh mesh{.pp = pp};
      const auto ranks =
          run_rules({mesh, config_for(mesh, {std::string("embedding.tied.fused=") + fused}), 4});
      for (const Ended& rank : ranks) {
        expect_same_tensors(alone[0].values, rank.values, to_text(rank.coord));
        expect_same_tensors(alone[0].moment2, rank.moment2, to_text(rank.coord));
      }
      for (std::size_t s = 0; s < 4; ++s) {
        EXPECT_EQ(ranks[0].measured[s].norm, alone[0].measured[s].norm);
        EXPECT_EQ(ranks[0].measured[s].loss, alone[0].measured[s].loss);
      }
    }
}

TEST(TiedEmbedding, BothEndsAndAllReplicasStayEqualWhateverTheMethod) {
  const std::vector<std::vector<std::string>> policies = {
      {},
      {kUnfused},
      {"dp.gradient.overlap=false"},
      {"dp.gradient.codec=quantise:bits=4"},
      {"dp.gradient.codec=quantise:bits=4", kUnfused},
      {"dp.gradient.codec=top_k:keep=0.1", "dp.gradient.down=half", "dp.gradient.stages=\"1\""},
      {"dp.gradient.codec=sign", "dp.gradient.warmup=2", "embedding.tied.codec=quantise:bits=4"},
      {"embedding.tied.codec=quantise:bits=3,grid=ends,rounding=stochastic", kUnfused},
      {"embedding.tied.codec=top_k:keep=0.2", "dp.gradient.stages=\"0.5\""},
      {"embedding.tied.method=power_sgd", "embedding.tied.rank=2"},
      {"embedding.tied.method=power_sgd", "embedding.tied.rank=2",
       "embedding.tied.codec=quantise:bits=8", "dp.gradient.codec=quantise:bits=4", kUnfused},
      {"embedding.tied.codec=random_k:keep=0.2", "dp.gradient.codec=random_k:keep=0.2"},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2"},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", kUnfused},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true",
       "dp.gradient.stages=\"1\"", "dp.gradient.warmup=1"},
      {"dp.gradient.method=compressed_adam", "dp.gradient.codec=sign", "dp.gradient.warmup=2"},
      {"dp.gradient.method=compressed_adam", "dp.gradient.codec=quantise:bits=4",
       "dp.gradient.warmup=1", "dp.gradient.stages=\"1\"", "embedding.tied.codec=quantise:bits=4"},
      {"local.steps=2", "dp.gradient.codec=quantise:bits=4"},
      {"local.steps=3", "dp.gradient.codec=quantise:bits=4", "dp.gradient.stages=\"1\""}};
  for (const Mesh& mesh : {Mesh{.pp = 2, .dp = 2}, Mesh{.pp = 3, .dp = 3}})
    for (const auto& sets : policies) {
      SCOPED_TRACE(to_text(mesh) + ": " + fmt::format("{}", fmt::join(sets, " ")));
      const RuleRun run{mesh, config_for(mesh, sets), 6};
      const auto ranks = run_rules(run);
      if (run.config.local.steps > 0) {  // moments are each replica's own
        for (const Ended& rank : ranks) {
          const Ended& replica = rank_at(ranks, mesh, rank.coord.pp, 0);
          expect_same_tensors(replica.values, rank.values, to_text(rank.coord));
        }
        for (int d = 0; d < mesh.dp; ++d)
          expect_lock_step({rank_at(ranks, mesh, 0, d), rank_at(ranks, mesh, mesh.pp - 1, d)});
      } else {
        expect_lock_step(ranks);
      }
      for (const Ended& rank : ranks)
        EXPECT_EQ(rank.measured.back().loss, ranks[0].measured.back().loss);
    }
}

// Factors of 96 x 16 in rank 3, 4 bytes each; all that is not sent is remembered:
// the sums of all steps and what the holders have left over are the sums of all gradients.
TEST(TiedEmbedding, LowRankSumsWeighTheirFactorsAndLoseNothingForEver) {
  for (const int dp : {1, 2}) {
    SCOPED_TRACE(dp);
    const Mesh mesh{.pp = 2, .dp = dp};
    const RunConfig c =
        config_for(mesh, {"embedding.tied.method=power_sgd", "embedding.tied.rank=3"});
    at::Tensor sent, given;
    std::vector<Ended> ranks;
    for (std::int64_t step = 0; step < 4; ++step) {
      ranks = run_rules({.mesh = mesh, .config = c, .first_step = step, .from = ranks});
      const GradientOf now = [&](const Parameter& p, std::int64_t, int replica, End end) {
        return random_gradient(p, step, replica, end);
      };
      const at::Tensor both = sum_at(End::embedding, dp, now).add_(sum_at(End::head, dp, now));
      given = given.defined() ? given.add_(both) : both;
      sent = sent.defined() ? sent.add_(tied_sum(ranks)) : tied_sum(ranks).clone();
      for (const Ended& rank : ranks) EXPECT_EQ(rank.note, "");
      Count tied;
      for (const Ended& rank : ranks) tied += laconic::sent(rank.meter, Traffic::embedding_tied);
      const std::uint64_t factors =
          2 * (2 * static_cast<std::uint64_t>(dp) - 1) * 3 * (96 + 16) * 4;
      EXPECT_GE(tied.wire_bytes, factors);
      EXPECT_LT(tied.wire_bytes, factors + tied.messages * 100) << "and frames";
    }
    EXPECT_GT(given.sub(sent).abs().max().item<double>(), 0.01) << "rank 3 is not all of it";
    for (const Ended& rank : ranks)
      for (const auto& [name, values] : rank.saved)
        if (name.starts_with(std::string(kShared)) && values.numel() == 96 * 16)
          sent.add_(values.view({96, 16}));
    EXPECT_LT(given.sub(sent).abs().max().item<double>(), 1e-5);
  }
}

TEST(TiedEmbedding, AnEncodedFirstStageKeepsItsHalfOfTheGradient) {
  const Mesh mesh{.pp = 3, .dp = 2};
  const at::Tensor expected = sum_at(End::embedding, mesh.dp, whole_gradient)
                                  .add_(sum_at(End::head, mesh.dp, whole_gradient));
  for (const std::vector<std::string>& method : std::vector<std::vector<std::string>>{
           {"dp.gradient.codec=quantise:bits=2"},
           {"dp.gradient.method=power_sgd", "dp.gradient.rank=1"}}) {
    std::vector<std::string> sets = method;
    sets.push_back("dp.gradient.stages=\"1\"");
    const auto ranks = run_rules({mesh, config_for(mesh, sets), 1, whole_gradient});
    for (const int pp : {0, 2})
      for (const int dp : {0, 1})
        EXPECT_TRUE(rank_at(ranks, mesh, pp, dp).gradients.at(0).equal(expected))
            << method.front() << " at " << pp << ", " << dp;
  }
}

TEST(TiedEmbedding, WithoutAPipelineThereIsNothingToFuse) {
  const Mesh mesh{.dp = 3};
  const auto fused = run_rules({mesh, config_for(mesh, {kInRankOrder}), 2});
  const auto unfused = run_rules({mesh, config_for(mesh, {kInRankOrder, kUnfused}), 2});
  at::Tensor expected;
  for (int d = 0; d < mesh.dp; ++d) {
    const at::Tensor both = tied_gradient(d, End::embedding, random_gradient)
                                .add_(tied_gradient(d, End::head, random_gradient));
    expected = expected.defined() ? expected.add_(both) : both;
  }
  EXPECT_TRUE(tied_sum(run_rules({mesh, config_for(mesh, {kInRankOrder})})).equal(expected));
  for (std::size_t r = 0; r < 3; ++r)
    expect_same_tensors(fused[r].values, unfused[r].values, to_text(fused[r].coord));
  EXPECT_EQ(raw_bytes(fused, Traffic::embedding_tied), 0U);
  EXPECT_EQ(raw_bytes(unfused, Traffic::embedding_tied), 0U);
}

TEST(TiedEmbedding, FusionSavesTheBytesThatArithmeticSays) {
  for (const int pp : {2, 3})
    for (const int dp : {1, 2, 3, 4}) {
      SCOPED_TRACE(fmt::format("pp {}, dp {}", pp, dp));
      const Mesh mesh{.pp = pp, .dp = dp};
      const auto fused = run_rules({mesh, config_for(mesh)});
      const auto unfused = run_rules({mesh, config_for(mesh, {kUnfused})});
      const std::uint64_t with = raw_bytes(fused, Traffic::embedding_tied);
      const std::uint64_t without = raw_bytes(unfused, Traffic::embedding_tied) +
                                    raw_bytes(unfused, Traffic::dp_gradient) -
                                    raw_bytes(fused, Traffic::dp_gradient);
      const auto d = static_cast<std::uint64_t>(dp);
      const std::uint64_t bytes = 96 * 16 * 4;
      EXPECT_EQ(with, 2 * (2 * d - 1) * bytes);
      EXPECT_EQ(without * (2 * d - 1), with * (3 * d - 2));
    }
}

TEST(TiedEmbedding, ANumberThatIsNotFiniteAtOneEndIsSkippedByAll) {
  const Mesh mesh{.pp = 3, .dp = 2};
  const GradientOf damaged = [](const Parameter& p, std::int64_t step, int replica, End end) {
    at::Tensor gradient = random_gradient(p, step, replica, end);
    if (p.number == 0 && end == End::head && replica == 1 && step == 1) gradient[3][4] = NAN;
    return gradient;
  };
  for (const char* codec : {"raw", "quantise:bits=4"})
    for (const char* fused : {"true", "false"}) {
      const RuleRun run{mesh,
                        config_for(mesh, {std::string("embedding.tied.codec=") + codec,
                                          std::string("embedding.tied.fused=") + fused}),
                        3, damaged};
      const auto ranks = run_rules(run);
      expect_lock_step(ranks);
      for (const Ended& rank : ranks)
        for (std::size_t s = 0; s < 3; ++s)
          EXPECT_EQ(rank.measured[s].is_skipped, s == 1) << to_text(rank.coord) << ", step " << s;
    }
}

}  // namespace
}  // namespace laconic::test
