// Sums that are used a step late (dp.gradient.late): L8 of the specification of twenty megabits.
#include "laconic/update/optimiser.hpp"
#include "pipeline_ranks.hpp"
#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

// One process that updates with the gradient of the step before, added up in the order of replicas.
class Delayed {
 public:
  explicit Delayed(const RunConfig& config)
      : config_(config),
        weights_(make_weights(kShape, 5, at::TensorOptions().dtype(at::kFloat))),
        state_(make_optimiser_state(weights_.parameters)) {}

  double step(std::int64_t number, const GradientOf& gradient) {
    std::vector<at::Tensor> now = sums(number, gradient);
    if (number >= config_.dp_gradient.late_after) std::swap(now, before_);
    if (now.empty()) return 0;
    for (std::size_t p = 0; p < now.size(); ++p) weights_.parameters[p].gradient = now[p];
    const double norm = global_norm(weights_.parameters), clip = config_.train.clip;
    if (std::isfinite(norm))
      apply(optimiser_spec(config_.optimiser), state_, weights_.parameters, 0.01,
            norm > clip ? clip / norm : 1);
    return norm;
  }

  const Weights& weights() const { return weights_; }
  const OptimiserState& state() const { return state_; }

 private:
  std::vector<at::Tensor> sums(std::int64_t step, const GradientOf& gradient) const {
    std::vector<at::Tensor> all;
    for (const Parameter& p : weights_.parameters)
      for (int r = 0; r < config_.mesh.dp; ++r) {
        at::Tensor share = gradient(p, step, r, End::embedding);
        if (p.number == 0) share.add_(gradient(p, step, r, End::head));
        if (r == 0)
          all.push_back(share);
        else
          all.back().add_(share);
      }
    return all;
  }

  const RunConfig& config_;
  Weights weights_;
  OptimiserState state_;
  std::vector<at::Tensor> before_;
};

void expect_delayed(const std::vector<Ended>& ranks, const Delayed& expected) {
  for (const Ended& rank : ranks)
    for (std::size_t p = 0; p < expected.weights().parameters.size(); ++p) {
      const std::string where = fmt::format("{}, parameter {}", to_text(rank.coord), p);
      EXPECT_TRUE(rank.values.at(p).equal(expected.weights().parameters[p].value)) << where;
      EXPECT_TRUE(rank.moment1.at(p).equal(expected.state().moment1[p])) << where;
      EXPECT_TRUE(rank.moment2.at(p).equal(expected.state().moment2[p])) << where;
    }
}

TEST(LateSums, AreThoseOfOneProcessWithADelayOfOne) {
  const Mesh mesh{.dp = 3};
  for (const std::int64_t after : {0, 2, 9}) {
    const RunConfig config =
        config_for(mesh, {"dp.gradient.late=1", fmt::format("dp.gradient.late_after={}", after),
                          "dp.gradient.algorithm=direct"});
    for (const std::int64_t steps : {1, 2, 3, 6}) {
      SCOPED_TRACE(fmt::format("after {}, {} steps", after, steps));
      Delayed expected(config);
      std::vector<double> norms;
      for (std::int64_t s = 0; s < steps; ++s) norms.push_back(expected.step(s, random_gradient));
      const auto ranks = run_rules({mesh, config, steps});
      expect_delayed(ranks, expected);
      for (const Ended& rank : ranks)
        for (std::size_t s = 0; s < norms.size(); ++s)
          EXPECT_EQ(rank.measured[s].norm, norms[s]) << "step " << s;
    }
  }
}

// The sum that is not finite is dropped, by all ranks, when it is its turn; the next one is used.
TEST(LateSums, ASumThatIsNotFiniteIsDroppedAlone) {
  const GradientOf damaged = [](const Parameter& p, std::int64_t step, int replica, End end) {
    at::Tensor gradient = random_gradient(p, step, replica, end);
    if (p.number == 2 && replica == 1 && step == 2) gradient.view(-1)[3] = NAN;
    return gradient;
  };
  const Mesh mesh{.dp = 2};
  const RunConfig config = config_for(
      mesh, {"dp.gradient.late=1", "dp.gradient.late_after=1", "dp.gradient.algorithm=direct"});
  Delayed expected(config);
  for (std::int64_t s = 0; s < 6; ++s) expected.step(s, damaged);
  const auto ranks = run_rules({mesh, config, 6, damaged});
  expect_delayed(ranks, expected);
  for (const Ended& rank : ranks)
    for (std::size_t s = 0; s < 6; ++s) EXPECT_EQ(rank.measured[s].is_skipped, s == 3) << s;
}

// Whatever encodes them: replicas and both ends of a pipeline stay alike, and what is kept goes on.
TEST(LateSums, GoOnBitForBitByAnyPolicyAndOverPipelines) {
  const std::vector<std::vector<std::string>> policies = {
      {},
      {"dp.gradient.codec=quantise:bits=4", "embedding.tied.codec=quantise:bits=4"},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true",
       "dp.gradient.codec=quantise:bits=6,block=64,rotate=true"},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.warmup=3"}};
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.pp = 2, .dp = 2}})
    for (std::vector<std::string> sets : policies) {
      SCOPED_TRACE(fmt::format("{}: {}", to_text(mesh), fmt::join(sets, " ")));
      sets.insert(sets.end(), {"dp.gradient.late=1", "dp.gradient.late_after=2"});
      const RunConfig config = config_for(mesh, sets);
      const auto whole = run_rules({mesh, config, 7});
      expect_lock_step(whole);
      for (const std::int64_t first : {2, 3, 5}) {
        const auto begun = run_rules({mesh, config, first});
        const auto rest = run_rules({.mesh = mesh,
                                     .config = config,
                                     .steps = 7 - first,
                                     .first_step = first,
                                     .updates = first > 2 ? first - 1 : first,
                                     .from = begun});
        for (std::size_t r = 0; r < whole.size(); ++r)
          expect_same_tensors(whole[r].values, rest[r].values, fmt::format("after {}", first));
      }
    }
}

// P7: what stages share alone is late, at all its holders; where there was no step before, zeros.
TEST(LateSums, OfWhatStagesShareAreThoseOfOneProcessThatUsesThatGradientAStepLate) {
  for (const std::int64_t after : {0, 2}) {
    const GradientOf delayed = [after](const Parameter& p, std::int64_t step, int replica,
                                       End end) {
      if (p.number != 0 || step < after) return random_gradient(p, step, replica, end);
      at::Tensor before = random_gradient(p, step - 1, replica, end);
      return step == after ? before.zero_() : before;
    };
    const auto alone = run_rules({{}, config_for({}), 6, delayed});
    for (const int pp : {2, 3, 6}) {
      SCOPED_TRACE(fmt::format("after {}, pp {}", after, pp));
      const Mesh mesh{.pp = pp};
      const auto ranks =
          run_rules({mesh,
                     config_for(mesh, {"embedding.tied.late=1",
                                       fmt::format("embedding.tied.late_after={}", after)}),
                     6});
      expect_lock_step(ranks);
      for (const Ended& rank : ranks) {
        expect_same_tensors(alone[0].values, rank.values, to_text(rank.coord));
        expect_same_tensors(alone[0].moment2, rank.moment2, to_text(rank.coord));
      }
      for (std::size_t s = 0; s < 6; ++s)
        EXPECT_EQ(ranks[0].measured[s].norm, alone[0].measured[s].norm) << s;
    }
  }
}

TEST(LateSums, OfWhatStagesShareGoOnBitForBit) {
  for (const std::vector<std::string>& policy : std::vector<std::vector<std::string>>{
           {}, {"embedding.tied.method=power_sgd", "embedding.tied.rank=2"}})
    for (const Mesh& mesh : {Mesh{.pp = 2}, Mesh{.pp = 3, .dp = 2}}) {
      SCOPED_TRACE(fmt::format("{}: {}", to_text(mesh), fmt::join(policy, " ")));
      std::vector<std::string> sets = policy;
      sets.insert(sets.end(), {"embedding.tied.late=1", "embedding.tied.late_after=1",
                               "dp.gradient.codec=quantise:bits=4"});
      const RunConfig config = config_for(mesh, sets);
      const auto whole = run_rules({mesh, config, 6});
      expect_lock_step(whole);
      for (const std::int64_t first : {1, 2, 4}) {
        const auto begun = run_rules({mesh, config, first});
        const auto rest = run_rules({.mesh = mesh,
                                     .config = config,
                                     .steps = 6 - first,
                                     .first_step = first,
                                     .from = begun});
        for (std::size_t r = 0; r < whole.size(); ++r)
          expect_same_tensors(whole[r].values, rest[r].values, fmt::format("after {}", first));
      }
    }
}

// With fewer replicas the sum that is applied is the same, up to rounding.
TEST(LateSums, WhatIsKeptIsSharedOutAmongOtherReplicas) {
  const auto config = [](const Mesh& mesh) {
    return config_for(mesh, {"dp.gradient.late=1", "dp.gradient.late_after=0"});
  };
  const Mesh three{.dp = 3}, two{.dp = 2};
  const auto begun = run_rules({three, config(three), 3});
  const auto on = [&](const Mesh& mesh) {
    return run_rules({.mesh = mesh,
                      .config = config(mesh),
                      .steps = 1,
                      .first_step = 3,
                      .updates = 2,
                      .from = begun});
  };
  const auto same = on(three), fewer = on(two);
  for (const auto& [number, value] : same[0].values)
    EXPECT_LT(value.sub(fewer[0].values.at(number)).abs().max().item<double>(), 1e-6) << number;
  EXPECT_NEAR(fewer[0].measured[0].norm, same[0].measured[0].norm, 1e-5);
  RunConfig own = config(two);
  own.dp_gradient.late = 0;
  EXPECT_NE(run_rules({.mesh = two, .config = own, .first_step = 3, .from = begun})[0].note.find(
                "nothing is late now"),
            std::string::npos);
}

}  // namespace

namespace {

class LateRun : public PipelineParallel {};

// Whole runs: what a run that goes on computes is what it would have computed.
TEST_F(LateRun, GoesOnBitForBit) {
  const auto late = [&](const char* name) {
    RunConfig c = config(name, 1, 2);
    set(c, {"train.steps=6", "dp.gradient.late=1", "dp.gradient.late_after=1",
            "dp.gradient.method=power_sgd", "dp.gradient.rank=2", "checkpoint.every=3",
            "checkpoint.keep=0"});
    return c;
  };
  const TrainSummary whole = run(late("whole"));
  const std::filesystem::path middle = folder_ / "parts/checkpoints/step-00000003";
  std::filesystem::create_directories(middle.parent_path());
  std::filesystem::copy(folder_ / "whole/checkpoints/step-00000003", middle,
                        std::filesystem::copy_options::recursive);
  const TrainSummary rest = run(late("parts"), "auto");
  EXPECT_EQ(rest.loss, whole.loss);
  EXPECT_TRUE(model_bytes(rest.checkpoint) == model_bytes(whole.checkpoint));
  EXPECT_TRUE(rank_files(rest.checkpoint) == rank_files(whole.checkpoint));
}

// P7 in a whole run, with directions that links learn beside: the checkpoint has what is kept.
TEST_F(LateRun, OfAPipelineGoesOnBitForBit) {
  const auto late = [&](const char* name) {
    RunConfig c = config(name, 2);
    set(c, {"train.steps=6", "embedding.tied.late=1", "embedding.tied.late_after=1",
            "embedding.tied.method=power_sgd", "embedding.tied.rank=2",
            "pp.activation.codec=transform:bits=5,refresh=2", "checkpoint.every=3",
            "checkpoint.keep=0"});
    return c;
  };
  const TrainSummary whole = run(late("whole"));
  const std::filesystem::path middle = folder_ / "parts/checkpoints/step-00000003";
  std::filesystem::create_directories(middle.parent_path());
  std::filesystem::copy(folder_ / "whole/checkpoints/step-00000003", middle,
                        std::filesystem::copy_options::recursive);
  const TrainSummary rest = run(late("parts"), "auto");
  EXPECT_EQ(rest.loss, whole.loss);
  EXPECT_TRUE(model_bytes(rest.checkpoint) == model_bytes(whole.checkpoint));
  EXPECT_TRUE(rank_files(rest.checkpoint) == rank_files(whole.checkpoint));
}

TEST_F(LateRun, WhatAsksAboutAStepsOwnGradientIsRefusedTogether) {
  RunConfig c = config("refused", 2, 2);
  set(c, {"dp.gradient.late=1", "dp.gradient.method=compressed_adam", "local.steps=2",
          "train.update=block", "steering.shadow=2", "embedding.tied.fused=false",
          "embedding.rows.method=alltoall"});
  const std::string all = to_text(check(c));
  for (const char* part : {"method = \"compressed_adam\"", "local.steps = 2", "train.update",
                           "steering.shadow = 2", "embedding.tied.fused", "embedding.rows.method"})
    EXPECT_NE(all.find(std::string("late = 1 with ") + part), std::string::npos) << part << all;
  set(c, {"dp.gradient.late=0", "embedding.tied.late=1"});
  const std::string tied = to_text(check(c));
  for (const char* part : {"fused = false", "dp.gradient.method", "local.steps = 2", "train.update",
                           "steering.shadow = 2", "embedding.rows.method"})
    EXPECT_NE(tied.find(std::string("embedding.tied.late: late = 1 with ") + part),
              std::string::npos)
        << part << tied;
  c = config("alone", 1, 1);
  set(c, {"dp.gradient.late=2"});
  const std::string alone = to_text(check(c));
  EXPECT_NE(alone.find("late = 2 is above 1"), std::string::npos) << alone;
  EXPECT_NE(alone.find("mesh.dp = 1"), std::string::npos) << alone;
}

}  // namespace
}  // namespace laconic::test
