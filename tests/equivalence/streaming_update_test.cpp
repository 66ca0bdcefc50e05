// Streaming DiLoCo against its formula in plain numbers; L6 and L7 of the specification of twenty
// megabits.
#include <cmath>

#include "laconic/architecture/model_spec.hpp"
#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

using Numbers = std::vector<double>;

Numbers doubles(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// Douillard et al. 2025, algorithm 2, with plain SGD inside: after a step t with t - t_p = 0 mod H
// the mean change of fragment p leaves, after t - t_p - tau = 0 mod H the outer step takes it, and
// theta_m = alpha theta_m + (1 - alpha) theta.
class StreamingDiLoCo {
 public:
  StreamingDiLoCo(const RunConfig& config, const Weights& weights)
      : config_(config), weights_(weights), values_(static_cast<std::size_t>(config.mesh.dp)) {
    for (const Parameter& p : weights.parameters) outer_.push_back(doubles(p.value));
    for (const Numbers& numbers : outer_) velocity_.emplace_back(numbers.size());
    sent_ = velocity_;
    for (auto& values : values_) values = outer_;
  }

  // Of the paper: t_p of the fragment that a parameter is in.
  std::int64_t turn_of(std::size_t p) const {
    const std::int64_t block = users_of(weights_.spec, p).front();
    const std::int64_t of_layers = (kShape.layers + config_.local.fragment - 1) /
                                   std::max<std::int64_t>(config_.local.fragment, 1);
    if (config_.local.fragment == 0) return 0;
    const bool is_layer = block > 0 && block <= kShape.layers;
    const std::int64_t fragment = is_layer ? (block - 1) % of_layers : of_layers;
    return fragment * config_.local.steps / (of_layers + 1);
  }

  void step(std::int64_t t, double lr, const GradientOf& gradient) {
    const auto& local = config_.local;
    for (std::size_t p = 0; p < outer_.size(); ++p) {
      inner_step(p, t, lr, gradient);
      const std::int64_t since = t - turn_of(p);
      if (t > 0 && since % local.steps == 0) leave(p);
      if (since - local.overlap >= 0 && t - local.overlap > 0 &&
          (since - local.overlap) % local.steps == 0)
        come(p);
    }
  }

  double farthest(const Ended& rank, bool is_outer) const {
    double most = 0;
    for (const auto& [number, value] : rank.values) {
      const Numbers found = doubles(value);
      const Numbers& expected =
          is_outer ? outer_[number] : values_[static_cast<std::size_t>(rank.coord.dp)][number];
      for (std::size_t i = 0; i < found.size(); ++i)
        most = std::max(most, std::abs(found[i] - expected[i]));
    }
    return most;
  }

 private:
  void inner_step(std::size_t p, std::int64_t t, double lr, const GradientOf& gradient) {
    for (std::size_t r = 0; r < values_.size(); ++r)
      for (const End end : {End::embedding, End::head}) {
        if (p != 0 && end == End::head) continue;
        const Numbers g =
            doubles(gradient(weights_.parameters[p], t - 1, static_cast<int>(r), end));
        for (std::size_t i = 0; i < g.size(); ++i) values_[r][p][i] -= lr * g[i];
      }
  }
  void leave(std::size_t p) {
    for (std::size_t i = 0; i < outer_[p].size(); ++i) {
      double mean = 0;
      for (const auto& values : values_) mean += values[p][i];
      sent_[p][i] = outer_[p][i] - mean / static_cast<double>(values_.size());
    }
  }
  void come(std::size_t p) {
    const auto [lr, momentum] = outer_step(config_.local);
    const double alpha = config_.local.mixing;
    for (std::size_t i = 0; i < outer_[p].size(); ++i) {
      velocity_[p][i] = momentum * velocity_[p][i] + sent_[p][i];
      outer_[p][i] -= lr * (sent_[p][i] + momentum * velocity_[p][i]);
      for (auto& values : values_) values[p][i] = alpha * values[p][i] + (1 - alpha) * outer_[p][i];
    }
  }

  const RunConfig& config_;
  const Weights& weights_;
  std::vector<Numbers> outer_, velocity_, sent_;
  std::vector<std::vector<Numbers>> values_;  // by replica
};

std::vector<std::string> streaming_sets(std::int64_t steps, std::int64_t layers,
                                        std::int64_t overlap, double mixing) {
  return {"local.method=streaming_diloco", fmt::format("local.steps={}", steps),
          fmt::format("local.fragment={}", layers), fmt::format("local.overlap={}", overlap),
          fmt::format("local.mixing={}", mixing)};
}

// Between steps all replicas have the same model; their moments are their own.
void expect_one_model(const std::vector<Ended>& ranks) {
  for (const Ended& rank : ranks) expect_same_tensors(ranks[0].values, rank.values, "replicas");
}

const std::vector<std::string> kPlainSgd = {"optimiser.kind=sgd", "optimiser.momentum=0",
                                            "optimiser.weight_decay=0"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Replicas where their own steps and mixtures have brought them, and, between steps, the outer
// parameters. Layers by one are five fragments, by three two and embedding and head.
TEST(StreamingDiLoCo, IsThePapersAlgorithm) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  struct Case {
    std::int64_t steps, layers, overlap;
    double mixing;
  };
  for (const Case& c : {Case{5, 1, 0, 0.5}, Case{6, 3, 2, 0.5}, Case{6, 2, 5, 0},
                        Case{5, 0, 3, 0.25}, Case{5, 1, 4, 0.5}}) {
    SCOPED_TRACE(fmt::format("rounds of {}, fragments of {}, overlap {}, mixing {}", c.steps,
                             c.layers, c.overlap, c.mixing));
    RunConfig config = config_for(
        {.dp = 3}, streaming_sets(c.steps, c.layers, c.overlap, c.mixing) + kPlainSgd +
                       std::vector<std::string>{"local.outer_lr=0.4", "local.outer_momentum=0.9",
                                                "run.precision=float64"});
    config.train.clip = 1e9;
    for (const std::int64_t steps : {4, 12, 17}) {
      StreamingDiLoCo expected(config, weights);
      for (std::int64_t t = 1; t <= steps; ++t) expected.step(t, 0.01, random_gradient);
      for (const bool is_settled : {false, true}) {
        const auto ranks = run_rules({.mesh = {.dp = 3},
                                      .config = config,
                                      .steps = steps,
                                      .is_settled = is_settled,
                                      .is_saved = is_settled});
        for (const Ended& rank : ranks)
          EXPECT_LT(expected.farthest(rank, is_settled), 1e-12) << steps << " " << is_settled;
        if (is_settled) expect_one_model(ranks);
      }
    }
  }
}

const std::vector<std::vector<std::string>> kPolicies = {
    {"dp.gradient.codec=raw"},
    {"dp.gradient.codec=quantise:bits=4"},
    {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.codec=quantise:bits=8"},
    {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true"}};

// L6, by AdamW and by Muon.
TEST(StreamingDiLoCo, WithOneFragmentThatComesAtOnceIsDiLoCoToTheBit) {
  for (const auto& policy : kPolicies)
    for (const char* kind : {"adamw", "muon"}) {
      const std::vector<std::string> common =
          policy + std::vector<std::string>{fmt::format("optimiser.kind={}", kind),
                                            "local.outer_lr=0.7", "local.outer_momentum=0.9"};
      SCOPED_TRACE(fmt::format("{} {}", fmt::join(policy, " "), kind));
      const Mesh mesh{.dp = 2};
      const auto plain = run_rules(
          {mesh, config_for(mesh, std::vector<std::string>{"local.steps=3"} + common), 7});
      const auto streamed =
          run_rules({mesh, config_for(mesh, streaming_sets(3, 0, 0, 0) + common), 7});
      for (std::size_t r = 0; r < 2; ++r) {
        expect_same_tensors(plain[r].values, streamed[r].values, "values");
        expect_same_tensors(plain[r].moment1, streamed[r].moment1, "moments");
        ASSERT_EQ(plain[r].saved.size(), streamed[r].saved.size());
        for (const auto& [name, tensor] : plain[r].saved)
          EXPECT_TRUE(tensor.equal(streamed[r].saved.at(name))) << name;
      }
    }
}

// L7: a checkpoint, with fragments under way, disturbs nothing, and a run goes on from it.
TEST(StreamingDiLoCo, GoesOnBitForBitByAnyPolicy) {
  const Mesh mesh{.dp = 2};
  for (const auto& policy : kPolicies)
    for (const auto& [layers, overlap] : {std::pair{2, 0}, {2, 3}, {1, 4}, {0, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {} {}", fmt::join(policy, " "), layers, overlap));
      const RunConfig config = config_for(mesh, streaming_sets(5, layers, overlap, 0.5) + policy);
      const auto half =
          run_rules({.mesh = mesh, .config = config, .steps = 10, .is_settled = true});
      EXPECT_EQ(overlap > 0, std::ranges::any_of(half[0].saved, [](const auto& item) {
                  return item.first.starts_with("came.");
                }));
      const auto rest = run_rules({.mesh = mesh,
                                   .config = config,
                                   .steps = 10,
                                   .is_settled = true,
                                   .first_step = 10,
                                   .from = half});
      EXPECT_EQ(rest[0].note, "");
      const auto whole =
          run_rules({.mesh = mesh, .config = config, .steps = 20, .is_settled = true});
      expect_one_model(rest);
      for (std::size_t r = 0; r < 2; ++r) {
        expect_same_tensors(whole[r].values, rest[r].values, "goes on");
        ASSERT_EQ(whole[r].saved.size(), rest[r].saved.size());
        for (const auto& [name, tensor] : whole[r].saved)
          EXPECT_TRUE(tensor.equal(rest[r].saved.at(name))) << name;
      }
    }
}

// What replicas owe, by parameter: all of them together.
std::map<std::string, at::Tensor> owed_of(const std::vector<Ended>& ranks) {
  std::map<std::string, at::Tensor> sums;
  for (const Ended& rank : ranks)
    for (const auto& [name, tensor] : rank.saved)
      if (name.starts_with("change.") && name.ends_with(".residual")) {
        const auto [place, is_new] = sums.try_emplace(name, tensor.to(at::kDouble).clone());
        if (!is_new) place->second.add_(tensor);
      }
  return sums;
}

// L7: with a replica less, what is owed in total stays; the others begin where the mean of all was.
TEST(StreamingDiLoCo, WithAReplicaLessNothingThatIsOwedIsLost) {
  const std::vector<std::vector<std::string>> methods = {
      streaming_sets(4, 2, 2, 0.5),
      {"local.method=linear", "local.steps=4", "local.overlap=2", "local.warmup=4"},
      {"local.steps=4"}};
  for (const auto& method : methods) {
    SCOPED_TRACE(method.front());
    const auto sets =
        method + std::vector<std::string>{"dp.gradient.method=power_sgd", "dp.gradient.rank=2"};
    const auto three = run_rules(
        {.mesh = {.dp = 3}, .config = config_for({.dp = 3}, sets), .steps = 8, .is_settled = true});
    const auto two = run_rules({.mesh = {.dp = 2},
                                .config = config_for({.dp = 2}, sets),
                                .steps = 0,
                                .is_settled = true,
                                .first_step = 8,
                                .from = three});
    const auto before = owed_of(three), after = owed_of(two);
    ASSERT_EQ(before.size(), after.size());
    EXPECT_GT(before.size(), 8U);
    for (const auto& [name, sum] : before) {
      EXPECT_GT(sum.abs().max().item<double>(), 1e-4) << name;
      EXPECT_LT(sum.sub(after.at(name)).abs().max().item<double>(), 1e-6) << name;
    }
    for (const auto& [name, own] : two[0].saved) {
      if (!name.starts_with("own.")) continue;
      at::Tensor mean = own.to(at::kDouble).neg();
      for (const Ended& rank : three) mean.add_(rank.saved.at(name), 1.0 / 3);
      EXPECT_LT(mean.abs().max().item<double>(), 1e-6) << name;
    }
    expect_one_model(two);
  }
}

// A run that goes on with other rounds takes what is under way before it sends more.
TEST(StreamingDiLoCo, GoesOnWithOtherRounds) {
  const Mesh mesh{.dp = 2};
  const auto half = run_rules({.mesh = mesh,
                               .config = config_for(mesh, streaming_sets(6, 1, 5, 0.5)),
                               .steps = 12,
                               .is_settled = true});
  for (const auto& sets :
       {streaming_sets(6, 2, 1, 0.25), streaming_sets(3, 0, 0, 0), {"local.steps=4"}}) {
    const auto rest = run_rules({.mesh = mesh,
                                 .config = config_for(mesh, sets),
                                 .steps = 12,
                                 .is_settled = true,
                                 .first_step = 12,
                                 .from = half});
    expect_one_model(rest);
    EXPECT_FALSE(rest[0].values.at(3).equal(half[0].values.at(3)));
  }
}

TEST(StreamingDiLoCo, FollowsItsPaperWhereNobodySaysOtherwise) {
  const LocalSection local{.steps = 30, .method = LocalMethod::streaming_diloco};
  EXPECT_EQ(outer_step(local).lr, 0.4);
  EXPECT_EQ(outer_step(local).momentum, 0.9);
  EXPECT_EQ(local.fragment, 3);
  EXPECT_EQ(local.mixing, 0.5);
  EXPECT_EQ(fragment_count(fragments_of(local, 14)), 5);
}

// What it does not go with, in one answer.
TEST(StreamingDiLoCo, RefusesWhatCannotBe) {
  RunConfig config = config_for({.pp = 2, .dp = 2}, streaming_sets(4, 1, 4, 0.5));
  config.mesh.tp = "2";
  config.steering.guard = GuardMode::watch;
  config.steering.every = 4;
  config.model.layers = 4;
  const std::string refused = to_text(check(config));
  for (const char* reason :
       {"streaming_diloco\" with mesh.pp = 2", "streaming_diloco\" with mesh.tp = \"2\"",
        "streaming_diloco\" with steering.guard = \"watch\"",
        "local.overlap: 4 steps of a round of 4",
        "local.fragment: 4 layers in fragments of 1, and embedding and head, are 5 fragments for 4 "
        "steps"})
    EXPECT_NE(refused.find(reason), std::string::npos) << reason << "\n" << refused;
}

}  // namespace
}  // namespace laconic::test
