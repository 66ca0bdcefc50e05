// Linear local updates and outer steps: L1, L2, L4, L7 and L9 of the specification of twenty
// megabits. Gradients depend on step and replica alone, so that the drift of replicas, which no
// method is exact about, is left out.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <functional>
#include <set>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/policy/local_round.hpp"
#include "laconic/tensor/host.hpp"
#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

using Numbers = std::vector<double>;

Numbers floats(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

double norm_of_all(const std::vector<Numbers>& all) {
  double sum = 0;
  for (const Numbers& numbers : all)
    for (const double x : numbers) sum += x * x;
  return std::sqrt(sum);
}

// Replicas that sum every gradient, by AdamW whose second moment is renewed in the same steps.
// Clipping is each replica's own where the others' steps are.
class Synchronous {
 public:
  Synchronous(const RunConfig& config, const Weights& weights)
      : config_(config), weights_(weights) {
    for (const Parameter& p : weights.parameters) values_.push_back(floats(p.value));
    for (const Numbers& v : values_) moment1_.emplace_back(v.size()), moment2_ = moment1_;
  }

  void step(std::int64_t number, double lr, const GradientOf& gradient) {
    const bool is_together = local_step(config_.local, number).is_together;
    const OptimiserSection& o = config_.optimiser;
    const std::vector<Numbers> g = mean(number, is_together, gradient);
    const double t = static_cast<double>(number + 1);
    renewals_ += is_together ? 1 : 0;
    for (std::size_t p = 0; p < g.size(); ++p)
      for (std::size_t i = 0; i < g[p].size(); ++i) {
        double &x = values_[p][i], &m = moment1_[p][i], &v = moment2_[p][i];
        m = o.beta1 * m + (1 - o.beta1) * g[p][i];
        if (is_together) v = o.beta2 * v + (1 - o.beta2) * g[p][i] * g[p][i];
        const double deviation = std::sqrt(v / (1 - std::pow(o.beta2, renewals_)));
        const double decay = weights_.parameters[p].value.dim() > 1 ? o.weight_decay : 0;
        x -= lr * decay * x + lr * m / (1 - std::pow(o.beta1, t)) / (deviation + o.epsilon);
      }
  }

  // Of the parameters that `counts` says, by number; of all without it.
  double farthest(const Ended& rank, const std::function<bool(std::size_t)>& counts = {}) const {
    double most = 0;
    for (const auto& [number, value] : rank.values) {
      if (counts && !counts(number)) continue;
      const Numbers found = floats(value);
      for (std::size_t i = 0; i < found.size(); ++i)
        most = std::max(most, std::abs(found[i] - values_[number][i]));
    }
    return most;
  }
  const std::vector<Numbers>& moment2() const { return moment2_; }

 private:
  // Replicas that step alone clip by so many times the threshold: see L9.
  std::vector<Numbers> mean(std::int64_t step, bool is_together, const GradientOf& gradient) const {
    const auto replicas = static_cast<double>(config_.mesh.dp);
    const auto scale = [&](const std::vector<Numbers>& g, double threshold) {
      return std::min(1.0, threshold / norm_of_all(g));
    };
    std::vector<Numbers> sum;
    for (int r = 0; r < config_.mesh.dp; ++r) {
      std::vector<Numbers> own;
      for (const Parameter& p : weights_.parameters) {
        own.push_back(floats(gradient(p, step, r, End::embedding)));
        if (p.number != 0) continue;
        const Numbers head = floats(gradient(p, step, r, End::head));
        for (std::size_t i = 0; i < head.size(); ++i) own.back()[i] += head[i];
      }
      const double clipped = is_together ? 1 : scale(own, config_.train.clip * std::sqrt(replicas));
      if (sum.empty())
        for (const Numbers& n : own) sum.emplace_back(n.size());
      for (std::size_t p = 0; p < own.size(); ++p)
        for (std::size_t i = 0; i < own[p].size(); ++i) sum[p][i] += clipped * own[p][i] / replicas;
    }
    const double all = is_together ? scale(sum, config_.train.clip) : 1;
    for (Numbers& n : sum)
      for (double& x : n) x *= all;
    return sum;
  }

  const RunConfig& config_;
  const Weights& weights_;
  std::vector<Numbers> values_, moment1_, moment2_;
  double renewals_ = 0;
};

std::vector<std::string> linear_sets(std::int64_t steps, std::int64_t overlap) {
  return {"local.method=linear",
          fmt::format("local.steps={}", steps),
          fmt::format("local.overlap={}", overlap),
          fmt::format("local.warmup={}", steps * ((3 + steps - 1) / steps)),
          "local.refresh=2",
          "run.precision=float64"};
}

// L4, in f64; the second to last round renews the second moment. L9: clipping is at work.
TEST(LinearLocal, TheMeanGoesWhereSummedGradientsGo) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  for (std::int64_t steps = 1; steps <= 8; ++steps)
    for (const std::int64_t overlap : {0, 1, 2}) {
      if (overlap > steps || (overlap == 2 && steps % 4 != 0)) continue;
      const Mesh mesh{.dp = steps % 2 == 0 ? 2 : 3};
      const RunConfig config = config_for(mesh, linear_sets(steps, overlap));
      const std::int64_t all = config.local.warmup + 3 * steps;
      Synchronous expected(config, weights);
      for (std::int64_t s = 0; s < all; ++s) expected.step(s, 0.01, random_gradient);
      const auto ranks =
          run_rules({.mesh = mesh, .config = config, .steps = all, .is_settled = true});
      expect_lock_step(ranks, true);
      for (const Ended& rank : ranks)
        EXPECT_LT(expected.farthest(rank), 1e-12) << steps << " steps, overlap " << overlap;
    }
}

// The guard of L4: with second moments of their own replicas go elsewhere.
TEST(LinearLocal, SecondMomentsOfTheirOwnGoElsewhere) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  const Mesh mesh{.dp = 2};
  RunConfig config = config_for(mesh, linear_sets(4, 0));
  Synchronous expected(config, weights);
  for (std::int64_t s = 0; s < 8; ++s) expected.step(s, 0.01, random_gradient);
  config.local.method = LocalMethod::diloco;
  for (const Ended& rank : run_rules({mesh, config, 8})) EXPECT_GT(expected.farthest(rank), 1e-3);
}

// L4 over pipelines, whose stages share a parameter.
TEST(LinearLocal, IsTheSameOverPipelines) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  const Mesh mesh{.pp = 2, .dp = 2};
  RunConfig config = config_for(mesh, linear_sets(2, 0));
  config.train.clip = 1e9;  // stages clip together, which is not what this is about
  Synchronous expected(config, weights);
  for (std::int64_t s = 0; s < 8; ++s) expected.step(s, 0.01, random_gradient);
  const auto ranks = run_rules({mesh, config, 8});
  expect_lock_step(ranks, true);
  for (const Ended& rank : ranks) EXPECT_LT(expected.farthest(rank), 1e-12);
}

// L9. Between renewals local steps leave the second moment alone, and all ranks have the same.
TEST(LinearLocal, TheSecondMomentIsRenewedTogetherOnly) {
  const Mesh mesh{.dp = 2};
  const RunConfig config = config_for(mesh, linear_sets(4, 1));  // a warm-up of 4
  std::vector<std::map<std::size_t, at::Tensor>> after;
  for (const std::int64_t steps : {4, 5, 6, 7, 8, 9, 13}) {
    const auto ranks =
        run_rules({.mesh = mesh, .config = config, .steps = steps, .is_settled = true});
    for (const auto& [number, moment] : ranks[0].moment2)
      EXPECT_TRUE(moment.equal(ranks[1].moment2.at(number))) << steps;
    after.push_back(ranks[0].moment2);
  }
  const auto is_new = [&](std::size_t i) { return !after[i].at(0).equal(after[i - 1].at(0)); };
  // Rounds 1 and 2 renew it in their first steps, round 3 does not.
  for (std::size_t i = 1; i < after.size(); ++i) EXPECT_EQ(is_new(i), i == 1 || i == 5) << i;
  const auto measured = run_rules({mesh, config, 7})[0].measured;
  for (std::size_t s = 0; s < 7; ++s)
    EXPECT_DOUBLE_EQ(measured[s].clip_times, s < 5 ? 1 : std::sqrt(2.0)) << s;
}

// Short changes do not make a second moment of coarse gradients; renewals behind the warm-up travel
// as changes do.
TEST(LinearLocal, TheWarmUpMayHaveACodecOfItsOwn) {
  const Mesh mesh{.dp = 2};
  const std::vector<std::string> exact = {"local.method=linear", "local.steps=4", "local.warmup=4"};
  std::vector<std::string> coarse = exact, mixed = exact;
  coarse.push_back("dp.gradient.codec=quantise:bits=2");
  mixed.insert(mixed.end(), {"dp.gradient.codec=quantise:bits=2", "local.warmup_codec=raw"});
  const auto after = [&](const std::vector<std::string>& sets, std::int64_t steps) {
    return run_rules({mesh, config_for(mesh, sets), steps})[0].moment2.at(1);
  };
  EXPECT_TRUE(after(mixed, 4).equal(after(exact, 4)));
  EXPECT_FALSE(after(mixed, 4).equal(after(coarse, 4)));
  EXPECT_FALSE(after(mixed, 5).equal(after(exact, 5)));
  const auto half = run_rules({mesh, config_for(mesh, mixed), 4});
  const auto whole = run_rules({mesh, config_for(mesh, mixed), 12});
  const auto rest = run_rules(
      {.mesh = mesh, .config = config_for(mesh, mixed), .steps = 8, .first_step = 4, .from = half});
  EXPECT_EQ(rest[0].note, "");
  for (std::size_t r = 0; r < 2; ++r)
    expect_same_tensors(whole[r].values, rest[r].values, "goes on");
  mixed.back() = "local.warmup_codec=low_rank:rank=2";
  const std::string refused = to_text(check_parallel(config_for(mesh, mixed)));
  EXPECT_TRUE(refused.starts_with("local.warmup_codec: low_rank needs matrices")) << refused;
}

TEST(LinearLocal, RoundsAreAFunctionOfTheStep) {
  LocalSection local{.steps = 4, .overlap = 2, .warmup = 8, .refresh = 4};
  std::string text;
  for (std::int64_t s = 6; s < 8 + 4 * 9; ++s) {
    const LocalStep one = local_step(local, s);
    text += one.is_together ? 'T' : one.takes_changes ? 't' : one.ends_round ? 'e' : '.';
  }
  EXPECT_EQ(text, "TTTt.eTt.e.t.eTt.e.t.e.t.e.t.eTt.e.t.e");
  local.overlap = 0;
  EXPECT_EQ(local_step(local, 9), LocalStep{.place = 1});
}

// L7. What is under way is taken before it is saved; with codecs residuals go on.
TEST(LinearLocal, GoesOnBitForBitByAnyPolicy) {
  const std::vector<std::vector<std::string>> policies = {
      {"dp.gradient.codec=quantise:bits=4"},
      {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true",
       "dp.gradient.codec=quantise:bits=6,block=64,rotate=true"}};
  const Mesh mesh{.dp = 2};
  for (const auto& policy : policies)
    for (const std::int64_t overlap : {0, 1, 2}) {
      std::vector<std::string> sets = linear_sets(2, overlap);
      sets.insert(sets.end(), policy.begin(), policy.end());
      sets.push_back("run.precision=float32");
      const RunConfig config = config_for(mesh, sets);
      SCOPED_TRACE(fmt::format("{}, overlap {}", fmt::join(policy, " "), overlap));
      const auto half = run_rules({.mesh = mesh, .config = config, .steps = 8, .is_settled = true});
      const auto remembers = [&](const char* unit) {
        return std::ranges::any_of(half[0].saved,
                                   [&](const auto& item) { return item.first.starts_with(unit); });
      };
      EXPECT_TRUE(remembers("change.") && remembers("gradient."));
      const RuleRun rest{.mesh = mesh,
                         .config = config,
                         .steps = 6,
                         .is_settled = true,
                         .first_step = 8,
                         .from = half};
      const auto once = run_rules(rest), again = run_rules(rest);
      expect_lock_step(once, true);
      for (std::size_t r = 0; r < once.size(); ++r)
        expect_same_tensors(once[r].values, again[r].values, "again");
      EXPECT_EQ(once[0].note, "");
      // With nothing settled between, overlap apart, it is the same run.
      if (overlap > 0) continue;
      const auto whole = run_rules({mesh, config, 14});
      for (std::size_t r = 0; r < whole.size(); ++r)
        expect_same_tensors(whole[r].values, once[r].values, "whole");
    }
}

// L4 where parts of the model travel at different steps: each, when it comes, is where summed
// gradients have brought it by the step after which it left, renewals in the middle of its round
// included.
TEST(SpreadLinear, EveryPartGoesWhereSummedGradientsGo) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  for (const std::int64_t steps : {2, 3, 5})
    for (const std::int64_t overlap : {0, 1, 2}) {
      const Mesh mesh{.dp = 2};
      std::vector<std::string> sets = linear_sets(steps, overlap);
      sets.emplace_back("local.spread=true");
      const RunConfig config = config_for(mesh, sets);
      const FragmentSpec fragments = fragments_of(config.local, kShape.layers + 2);
      ASSERT_GT(fragment_count(fragments), 1);
      const auto fragment_at = [&](std::size_t p) {
        return fragment_of(fragments, users_of(weights.spec, p).front());
      };
      Synchronous expected(config, weights);
      std::int64_t done = 0;
      std::set<std::int64_t> seen;
      for (std::int64_t all = config.local.warmup + steps + 1;
           all <= config.local.warmup + 2 * steps; ++all) {
        for (; done < all; ++done) expected.step(done, 0.01, random_gradient);
        const auto ranks =
            run_rules({.mesh = mesh, .config = config, .steps = all, .is_settled = true});
        expect_lock_step(ranks, true);  // the model, though replicas have their own
        const auto left_now = [&](std::size_t p) {
          return fragment_step(config.local, fragments, fragment_at(p), all - 1)
              .leaves_after_update;
        };
        for (std::size_t p = 0; p < weights.parameters.size(); ++p)
          if (left_now(p)) seen.insert(fragment_at(p));
        for (const Ended& rank : ranks) {
          EXPECT_LT(expected.farthest(rank, left_now), 1e-12)
              << steps << " steps, overlap " << overlap << ", after " << all;
          EXPECT_GT(expected.farthest(rank), 1e-4) << "other parts were there, too";
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), fragment_count(fragments));
    }
}

TEST(SpreadLinear, GoesOnBitForBitWithWhatRanksHaveOfTheirOwn) {
  for (const std::int64_t overlap : {0, 1, 2}) {
    SCOPED_TRACE(overlap);
    std::vector<std::string> sets = linear_sets(4, overlap);
    sets.insert(sets.end(), {"local.spread=true", "dp.gradient.codec=quantise:bits=4",
                             "run.precision=float32"});
    const Mesh mesh{.dp = 2};
    const RunConfig config = config_for(mesh, sets);
    const auto half = run_rules({.mesh = mesh, .config = config, .steps = 12, .is_settled = true});
    EXPECT_TRUE(std::ranges::any_of(
        half[0].saved, [](const auto& item) { return item.first.starts_with("own."); }));
    const RuleRun rest{.mesh = mesh,
                       .config = config,
                       .steps = 8,
                       .is_settled = true,
                       .first_step = 12,
                       .from = half};
    const auto once = run_rules(rest), again = run_rules(rest);
    EXPECT_EQ(once[0].note, "");
    expect_lock_step(once, true);
    for (std::size_t r = 0; r < once.size(); ++r)
      expect_same_tensors(once[r].values, again[r].values, "again");
    // Changes that come at once leave nothing under way for a checkpoint to hurry.
    if (overlap > 0) continue;
    const auto whole = run_rules({.mesh = mesh, .config = config, .steps = 20, .is_settled = true});
    for (std::size_t r = 0; r < whole.size(); ++r)
      expect_same_tensors(whole[r].values, once[r].values, "whole");
  }
}

// While changes travel, decay shrinks what they were measured from: they are added as small as
// that. The mean of replicas cannot tell, for their corrections add up to nothing; that they meet
// can. They differ in one step; first moments, which are their own, are switched off.
TEST(SpreadLinear, ReplicasThatDifferInOneStepMeetThoughChangesComeLate) {
  constexpr std::int64_t kAlone = 11;  // the last of the second round
  const GradientOf once = [](const Parameter& p, std::int64_t step, int replica, End end) {
    return random_gradient(p, step, step == kAlone ? replica : 0, end);
  };
  for (const bool spread : {false, true}) {
    std::vector<std::string> sets = linear_sets(4, 2);
    sets.insert(sets.end(), {fmt::format("local.spread={}", spread), "optimiser.beta1=0",
                             "optimiser.weight_decay=10"});
    RunConfig config = config_for({.dp = 2}, sets);
    config.train.clip = 1e9;
    const auto farthest = [&](std::int64_t steps) {
      const auto ranks = run_rules({.mesh = {.dp = 2},
                                    .config = config,
                                    .steps = steps,
                                    .gradient = once,
                                    .is_saved = false});
      double most = 0;
      for (const auto& [number, value] : ranks[0].values)
        most = std::max(most, (value - ranks[1].values.at(number)).abs().max().item<double>());
      return most;
    };
    EXPECT_GT(farthest(kAlone + 1), 1e-4);
    // Before the update two steps later everything has come, or with parts, by the next renewal.
    EXPECT_LT(farthest(kAlone + (spread ? 6 : 3)), 1e-14) << (spread ? "in parts" : "at once");
  }
}

TEST(SpreadLinear, EveryStepSendsItsPart) {
  LocalSection local{
      .steps = 4, .method = LocalMethod::linear, .overlap = 1, .spread = true, .warmup = 4};
  const FragmentSpec fragments = fragments_of(local, 8);
  EXPECT_EQ(fragments.layers, 2);
  EXPECT_EQ(fragment_count(fragments), 4);
  std::string text;
  for (std::int64_t s = 3; s < 14; ++s) {
    for (std::int64_t f = 0; f < 4; ++f) {
      const FragmentStep now = fragment_step(local, fragments, f, s);
      if (now.comes_before_update) text += fmt::format("<{}", f);
      if (now.leaves_after_update) text += fmt::format("{}>", f);
    }
    text += ' ';
  }
  // Steps 4 and 8 are taken together, and take all that is under way.
  EXPECT_EQ(text, "<0<1<2<3 <0<11><2<3 <12> <23> 0><3 <0<11><2<3 <12> <23> 0><3 <01> <12> ");
  local.steps = 1;
  EXPECT_EQ(fragment_count(fragments_of(local, 8)), 1);
  local.steps = 100;
  EXPECT_EQ(fragment_count(fragments_of(local, 8)), 7);
}

TEST(SpreadLinear, IsRefusedWithItsReasons) {
  const std::string text = to_text(check(config_for(
      {.pp = 2, .dp = 2}, {"local.method=linear", "local.steps=4", "local.spread=true"})));
  EXPECT_NE(text.find("local.spread: spread = true with mesh.pp = 2"), std::string::npos) << text;
  const std::string other =
      to_text(check(config_for({.dp = 2}, {"local.steps=4", "local.spread=true"})));
  EXPECT_NE(other.find("spread = true with method = \"diloco\""), std::string::npos) << other;
}

// L1. Numbers that no addition rounds, so that the mean of updates is the update by the mean.
TEST(LocalUpdates, RoundsOfOneStepOfSgdAreSummedGradients) {
  const Mesh mesh{.dp = 2};
  const auto whole = [](Weights& weights) {
    const at::NoGradGuard no_grad;
    for (Parameter& p : weights.parameters) p.value.mul_(256).round_().div_(256);
  };
  const auto go = [&](const std::vector<std::string>& more, double weight) {
    std::vector<std::string> sets = {"optimiser.kind=sgd", "optimiser.momentum=0",
                                     "optimiser.weight_decay=0"};
    sets.insert(sets.end(), more.begin(), more.end());
    RunConfig config = config_for(mesh, sets);
    config.train.clip = 1e9;
    return run_rules(
        {.mesh = mesh,
         .config = config,
         .steps = 5,
         .gradient = [weight](const Parameter& p, std::int64_t s, int r,
                              End e) { return whole_gradient(p, s, r, e).mul_(weight); },
         .lr = 0.0625,
         .start = whole});
  };
  // A rank's gradient is a mean over its samples, or its share of that over all.
  const auto summed = go({}, 0.5), local = go({"local.steps=1"}, 1);
  for (std::size_t r = 0; r < 2; ++r)
    expect_same_tensors(summed[r].values, local[r].values, "rounds of one step");
}

// L2. Replicas that see the same go where one goes alone.
TEST(LocalUpdates, AMeanOfEqualReplicasIsEachOfThem) {
  const GradientOf same = [](const Parameter& p, std::int64_t step, int, End end) {
    return random_gradient(p, step, 0, end);
  };
  const Mesh mesh{.dp = 2};
  for (const std::int64_t steps : {1, 3, 5}) {
    const auto config = [&](std::int64_t round) {
      return config_for(mesh, {fmt::format("local.steps={}", round), "run.precision=float64"});
    };
    const auto met = run_rules({mesh, config(steps), steps, same});
    const auto alone = run_rules({mesh, config(1000), steps, same});
    for (const auto& [number, value] : alone[0].values)
      EXPECT_LT((value - met[0].values.at(number)).abs().max().item<double>(), 1e-15) << steps;
  }
}

// L3. Replicas whose one step of SGD is the change of a round.
TEST(LocalUpdates, TheOuterStepIsPyTorchs) {
  const SafetensorsFile file(source_root() + "/tests/golden/optimiser/expected.safetensors");
  const auto expected = [&](const std::string& name) {
    const SafetensorsEntry& entry = file.at(name);
    return tensor_from_bytes(file.bytes(entry), entry.dtype, entry.shape);
  };
  const at::Tensor changes = expected("outer.changes"), after = expected("outer.after");
  const GradientOf change = [&](const Parameter& p, std::int64_t step, int replica, End end) {
    const double share = p.number == 0 && end == End::head ? 0 : replica == 0 ? 0.5 : 1.5;
    return at::empty_like(p.value.detach()).fill_(changes[step].item<double>() * share);
  };
  RunConfig config =
      config_for({.dp = 2}, {"local.steps=1", "local.outer_lr=0.7", "local.outer_momentum=0.9",
                             "optimiser.kind=sgd", "optimiser.momentum=0",
                             "optimiser.weight_decay=0", "run.precision=float64"});
  config.train.clip = 1e9;
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  for (std::int64_t rounds = 1; rounds <= 5; ++rounds)
    for (const Ended& rank : run_rules(
             {.mesh = {.dp = 2}, .config = config, .steps = rounds, .gradient = change, .lr = 1}))
      for (const auto& [number, value] : rank.values) {
        const at::Tensor moved = value - weights.parameters[number].value.detach();
        EXPECT_LT((moved - after[rounds - 1]).abs().max().item<double>(), 1e-14) << rounds;
      }
}

// What nobody says about the outer step depends on the length of rounds.
TEST(LocalUpdates, ShortRoundsAreAveraged) {
  for (const auto& [steps, lr, momentum] :
       {std::tuple{1, 1.0, 0.0}, {2, 1.0, 0.0}, {29, 1.0, 0.0}, {30, 0.7, 0.9}, {500, 0.7, 0.9}}) {
    const OuterStep step = outer_step({.steps = steps});
    EXPECT_EQ(step.lr, lr) << steps;
    EXPECT_EQ(step.momentum, momentum) << steps;
  }
  const OuterStep said = outer_step({.steps = 2, .outer_lr = 0.5, .outer_momentum = 0.25});
  EXPECT_EQ(said.lr, 0.5);
  EXPECT_EQ(said.momentum, 0.25);
}

// SparseLoCo: what replicas have changed, by plain SGD, is what they have sent and what they owe;
// all go the same way, and a run that goes on goes on. Pipelines, too.
TEST(SparseLoco, WhatReplicasChangeIsSentOrOwed) {
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.pp = 2, .dp = 2}})
    for (const char* aggregate : {"mean", "choosers"}) {
      RunConfig config =
          config_for(mesh, {"local.method=sparse_loco", "local.steps=2", "local.memory=0.5",
                            fmt::format("local.aggregate={}", aggregate), "optimiser.kind=sgd",
                            "optimiser.momentum=0", "optimiser.weight_decay=0"});
      config.train.clip = 1e9;
      SCOPED_TRACE(fmt::format("{} {}", to_text(mesh), aggregate));
      const auto half = run_rules({mesh, config, 2}), whole = run_rules({mesh, config, 4});
      expect_lock_step(whole, true);
      const auto rest =
          run_rules({.mesh = mesh, .config = config, .steps = 2, .first_step = 2, .from = half});
      for (std::size_t r = 0; r < whole.size(); ++r)
        expect_same_tensors(whole[r].values, rest[r].values, "goes on");
      if (mesh.pp > 1 || aggregate != std::string("mean")) continue;
      const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kFloat));
      for (const Parameter& p : weights.parameters) {
        // Of both rounds: 0.01 times the gradients is sent, or owed, of the first round half of
        // that.
        at::Tensor given = at::zeros_like(p.value.detach()), kept = given.clone();
        for (std::size_t r = 0; r < 2; ++r) {
          kept.sub_(half[r].saved.at("owed." + p.name), 0.25);
          given.add_(whole[r].saved.at("owed." + p.name), 0.5);
          for (std::int64_t s = 0; s < 4; ++s)
            for (const End end : {End::embedding, End::head})
              if (p.number == 0 || end == End::embedding)
                given.sub_(random_gradient(p, s, static_cast<int>(r), end), 0.005);
        }
        // Means over two replicas: 0.01 times the gradients is what was sent, what is owed, and
        // half of what was owed after the first round, which is forgotten.
        const at::Tensor sent = p.value.detach() - whole[0].values.at(p.number);
        EXPECT_LT((sent + given - kept).abs().max().item<double>(), 1e-5) << p.name;
      }
    }
}

}  // namespace
}  // namespace laconic::test
