// Local updates and compressed_adam against their formulas, written out in plain numbers.
#include <cmath>

#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

using Numbers = std::vector<double>;

Numbers numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

double square_of(const std::vector<Numbers>& all) {
  double sum = 0;
  for (const Numbers& numbers : all)
    for (const double x : numbers) sum += x * x;
  return sum;
}

// The gradients of a replica that holds the whole model: those of both ends of the tied parameter
// add up.
std::vector<Numbers> gradients_of(const Weights& weights, const GradientOf& gradient,
                                  std::int64_t step, int replica) {
  std::vector<Numbers> all;
  for (const Parameter& p : weights.parameters) {
    all.push_back(numbers_of(gradient(p, step, replica, End::embedding)));
    if (p.number != 0) continue;
    const Numbers head = numbers_of(gradient(p, step, replica, End::head));
    for (std::size_t i = 0; i < head.size(); ++i) all.back()[i] += head[i];
  }
  return all;
}

// DiLoCo (Douillard et al. 2023, algorithm 1): every replica takes H steps of AdamW alone; their
// mean change is the gradient of an outer step with Nesterov momentum, which goes along
// momentum * velocity + change after velocity = momentum * velocity + change.
class DiLoCo {
 public:
  DiLoCo(const RunConfig& config, const Weights& weights)
      : config_(config), weights_(weights), replicas_(static_cast<std::size_t>(config.mesh.dp)) {
    for (const Parameter& p : weights.parameters) shared_.push_back(numbers_of(p.value));
    velocity_ = zeros();
    for (Replica& replica : replicas_) replica = {shared_, zeros(), zeros()};
  }

  void step(std::int64_t number, const GradientOf& gradient) {
    for (std::size_t r = 0; r < replicas_.size(); ++r)
      inner_step(replicas_[r], gradients_of(weights_, gradient, number, static_cast<int>(r)));
    if ((number + 1) % config_.local.steps == 0) outer_step();
  }

  const std::vector<Numbers>& values(int replica) const {
    return replicas_[static_cast<std::size_t>(replica)].values;
  }

 private:
  struct Replica {
    std::vector<Numbers> values, moment1, moment2;
    int updates = 0;
  };

  std::vector<Numbers> zeros() const {
    std::vector<Numbers> all;
    for (const Numbers& numbers : shared_) all.emplace_back(numbers.size(), 0.0);
    return all;
  }

  void inner_step(Replica& replica, const std::vector<Numbers>& gradients) const {
    const double norm = std::sqrt(square_of(gradients));
    if (!std::isfinite(norm)) return;  // this replica's step is left out
    const double lr = 0.01;            // as RankOfRules has it
    const double scale = std::min(1.0, config_.train.clip / norm);
    const OptimiserSection& o = config_.optimiser;
    const int t = ++replica.updates;
    for (std::size_t p = 0; p < gradients.size(); ++p)
      for (std::size_t i = 0; i < gradients[p].size(); ++i) {
        double &x = replica.values[p][i], &m = replica.moment1[p][i], &v = replica.moment2[p][i];
        const double g = scale * gradients[p][i];
        m = o.beta1 * m + (1 - o.beta1) * g;
        v = o.beta2 * v + (1 - o.beta2) * g * g;
        const double mean = m / (1 - std::pow(o.beta1, t));
        const double deviation = std::sqrt(v / (1 - std::pow(o.beta2, t)));
        const bool decays = weights_.parameters[p].value.dim() > 1;
        x -= lr * (decays ? o.weight_decay : 0) * x + lr * mean / (deviation + o.epsilon);
      }
  }

  void outer_step() {
    const auto [lr, momentum] = laconic::outer_step(config_.local);
    for (std::size_t p = 0; p < shared_.size(); ++p)
      for (std::size_t i = 0; i < shared_[p].size(); ++i) {
        double mean = 0;
        for (const Replica& replica : replicas_) mean += replica.values[p][i];
        const double change = shared_[p][i] - mean / static_cast<double>(replicas_.size());
        velocity_[p][i] = momentum * velocity_[p][i] + change;
        shared_[p][i] -= lr * (change + momentum * velocity_[p][i]);
        for (Replica& replica : replicas_) replica.values[p][i] = shared_[p][i];
      }
  }

  const RunConfig& config_;
  const Weights& weights_;
  std::vector<Numbers> shared_, velocity_;
  std::vector<Replica> replicas_;
};

void expect_diloco(const Mesh& mesh, const std::vector<std::string>& sets, std::int64_t steps,
                   const GradientOf& gradient) {
  RunConfig config = config_for(mesh, sets);
  EXPECT_TRUE(apply_set("run.precision=float64", config).empty());
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  DiLoCo model(config, weights);
  for (std::int64_t s = 0; s < steps; ++s) model.step(s, gradient);
  const auto ranks = run_rules({mesh, config, steps, gradient});
  for (const Ended& rank : ranks)
    for (const auto& [number, value] : rank.values) {
      const Numbers found = numbers_of(value), &expected = model.values(rank.coord.dp)[number];
      double most = 0;
      for (std::size_t i = 0; i < found.size(); ++i)
        most = std::max(most, std::abs(found[i] - expected[i]));
      EXPECT_LT(most, 1e-12) << to_text(mesh) << " at " << to_text(rank.coord) << ", parameter "
                             << number << ", " << steps << " steps";
    }
}

TEST(LocalUpdates, AreDiLoCo) {
  for (const char* outer_lr : {"0.7", "1.0", "0.25"})
    for (const char* momentum : {"0.9", "0.0", "0.5"})
      expect_diloco({.dp = 3},
                    {"local.steps=2", std::string("local.outer_lr=") + outer_lr,
                     std::string("local.outer_momentum=") + momentum},
                    6, random_gradient);
}

// In the middle of a round replicas are where their own steps have brought them.
TEST(LocalUpdates, AreDiLoCoBetweenOuterStepsAndOverPipelines) {
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.pp = 2, .dp = 2}, Mesh{.pp = 3, .dp = 3}})
    for (const std::int64_t steps : {3, 4, 7, 9})
      expect_diloco(mesh, {"local.steps=3"}, steps, random_gradient);
}

// The step of one replica that is not finite is left out, and no other.
TEST(LocalUpdates, ALeftOutStepIsThatOfItsReplicaAlone) {
  const GradientOf damaged = [](const Parameter& p, std::int64_t step, int replica, End end) {
    at::Tensor gradient = random_gradient(p, step, replica, end);
    const bool is_bad = replica == 1 && (step == 1 || step == 5);  // 5 ends a round
    if (p.number == 2 && is_bad) gradient.view(-1)[3] = NAN;
    return gradient;
  };
  expect_diloco({.dp = 3}, {"local.steps=3"}, 9, damaged);
  expect_diloco({.pp = 2, .dp = 2}, {"local.steps=3"}, 9, damaged);
}

// After warm-up the norm is the root mean square of the replicas' own: each of the mean over its
// samples, which is as many times its share as there are replicas. In a pipeline both ends of the
// tied gradient count by themselves.
TEST(CompressedAdam, TheNormIsTheRootMeanSquareOfTheReplicas) {
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kDouble));
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 3}, Mesh{.pp = 2, .dp = 3}}) {
    const RunConfig config = config_for(mesh, {"dp.gradient.method=compressed_adam",
                                               "dp.gradient.warmup=1", "run.precision=float64"});
    const auto ranks = run_rules({mesh, config, 3});
    for (const std::int64_t step : {1, 2}) {
      double mean = 0;
      for (int r = 0; r < mesh.dp; ++r) {
        double square = square_of(gradients_of(weights, random_gradient, step, r));
        if (mesh.pp > 1) {
          const Parameter& tied = weights.parameters[0];
          square -= square_of({gradients_of(weights, random_gradient, step, r)[0]});
          for (const End end : {End::embedding, End::head})
            square += square_of({numbers_of(random_gradient(tied, step, r, end))});
        }
        mean += square * mesh.dp * mesh.dp / mesh.dp;
      }
      for (const Ended& rank : ranks)
        EXPECT_NEAR(rank.measured[static_cast<std::size_t>(step)].norm, std::sqrt(mean), 1e-10)
            << to_text(mesh) << ", step " << step;
    }
  }
}

// y(1) + ... + y(n) + what is owed = what was given, where y is the moment that all take for
// theirs: each member gives its part of beta * y before and its share of the gradient.
TEST(CompressedAdam, WhatMomentsLoseIsOwed) {
  const Mesh mesh{.dp = 2};
  RunConfig config = config_for(mesh, {"dp.gradient.method=compressed_adam", "dp.gradient.warmup=1",
                                       "dp.gradient.codec=quantise:bits=2"});
  config.train.clip = 1e9;
  const std::int64_t steps = 4;
  const auto ranks = run_rules({mesh, config, steps});
  double owed = 0, size = 0;
  for (const Ended& rank : ranks)
    for (const auto& [name, tensor] : rank.saved)
      if (name.starts_with("moment.")) {
        owed += tensor.to(at::kDouble).sum().item<double>();
        size += tensor.abs().sum().item<double>();
      }
  EXPECT_GT(size, 1);
  // Summed over all elements: of every step after the first, what was given and what came out.
  const Weights weights = make_weights(kShape, 5, at::TensorOptions().dtype(at::kFloat));
  const double beta = config.optimiser.beta1;
  double given = 0, came = 0, before = 0;
  for (std::int64_t s = 0; s < steps; ++s) {
    double gradient = 0;
    for (int r = 0; r < mesh.dp; ++r)
      for (const Numbers& numbers : gradients_of(weights, random_gradient, s, r))
        for (const double x : numbers) gradient += x;
    const auto now = run_rules({mesh, config, s + 1});
    double moment = 0;
    for (const auto& [number, tensor] : now[0].moment1)
      moment += tensor.to(at::kDouble).sum().item<double>();
    if (s > 0) {
      given += beta * before + (1 - beta) * gradient;
      came += moment;
    }
    before = moment;
  }
  EXPECT_NEAR(came + owed, given, 1e-3);
}

}  // namespace
}  // namespace laconic::test
