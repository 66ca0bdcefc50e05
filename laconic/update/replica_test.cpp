// T21 of the specification of AC-SGD: whatever the sums lose, all replicas go the same way.
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/config/read.hpp"
#include "laconic/model/test_gpt.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kSteps = 5;

struct Replica {
  std::vector<at::Tensor> weights, moment1, moment2;
};

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

Replica replica_of(const Weights& weights, const OptimiserState& state) {
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : weights.parameters) values.push_back(parameter.value);
  return {copies(values), copies(state.moment1), copies(state.moment2)};
}

void fill_gradients(Weights& weights, int rank, std::int64_t step) {
  const Key key =
      derive(derive(key_of(4), static_cast<std::uint64_t>(rank)), static_cast<std::uint64_t>(step));
  for (Parameter& parameter : weights.parameters) {
    at::Tensor& gradient = parameter.gradient = at::empty_like(parameter.value.detach());
    fill_normal(derive(key, parameter.name), 0, 0, 0.1,
                std::span(gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())));
  }
}

// By rank, and then by step.
std::vector<std::vector<Replica>> train_replicas(const RunConfig& config) {
  std::vector<std::vector<Replica>> all(static_cast<std::size_t>(config.mesh.dp));
  run_ranks(static_cast<int>(config.mesh.dp), [&](Transport& transport) {
    Engine engine(transport);
    ProgressThread progress_thread(engine);
    World world(Mesh{.dp = transport.size()}, progress_thread);
    Weights weights = make_tiny_weights(at::kFloat);
    OptimiserState state = make_optimiser_state(weights.parameters);
    const auto rule = make_update_rule({config, weights, world, {}, 1});
    for (std::int64_t step = 0; step < kSteps; ++step) {
      rule->begin(step);
      fill_gradients(weights, transport.rank(), step);
      for (std::int64_t b = block_count(weights.spec) - 1; b >= 0; --b) rule->block_done(b);
      rule->measure(1, 0);
      rule->apply(state, 1e-2, 0.5);
      clear_gradients(weights);
      all[static_cast<std::size_t>(transport.rank())].push_back(replica_of(weights, state));
    }
    engine.flush();
  });
  return all;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

RunConfig config_of(std::int64_t dp, const std::vector<std::string>& settings) {
  RunConfig config;
  config.mesh.dp = dp;
  config.train.batch = 12;
  config.train.steps = kSteps;
  for (const std::string& set : settings)
    EXPECT_TRUE(apply_set("dp.gradient." + set, config).empty()) << set;
  return config;
}

TEST(Replica, WeightsAndMomentsAreTheSameOnAllRanksAfterEveryStep) {
  const std::vector<std::vector<std::string>> policies = {
      {"codec=quantise:bits=4"},
      {"codec=sign", "warmup=1"},
      {"codec=top_k:keep=0.05", "down=quantise:bits=8", "feedback=up"},
      {"codec=random_k:keep=0.2", "algorithm=ring"},
      {"method=power_sgd", "rank=2"},
      {"method=compressed_adam", "codec=sign", "warmup=2"}};
  for (const auto& settings : policies)
    for (const std::int64_t dp : {2, 3}) {
      SCOPED_TRACE(fmt::format("{}, dp {}", fmt::join(settings, " "), dp));
      const auto replicas = train_replicas(config_of(dp, settings));
      for (std::size_t step = 0; step < kSteps; ++step)
        for (const auto& other : replicas) {
          expect_same(replicas[0][step].weights, other[step].weights);
          expect_same(replicas[0][step].moment1, other[step].moment1);
          expect_same(replicas[0][step].moment2, other[step].moment2);
        }
    }
}

TEST(Replica, CompressedAdamKeepsTheSecondMomentOfItsWarmUp) {
  const auto steps =
      train_replicas(config_of(2, {"method=compressed_adam", "codec=sign", "warmup=2"}))[0];
  EXPECT_FALSE(steps[0].moment2[0].equal(steps[1].moment2[0]));
  for (std::size_t step = 2; step < kSteps; ++step) {
    expect_same(steps[step].moment2, steps[1].moment2);
    EXPECT_FALSE(steps[step].moment1[0].equal(steps[step - 1].moment1[0])) << step;
    EXPECT_FALSE(steps[step].weights[0].equal(steps[step - 1].weights[0])) << step;
  }
}

}  // namespace
}  // namespace laconic
