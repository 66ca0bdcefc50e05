#include "laconic/update/optimiser.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>

#include "laconic/base/test_target.hpp"
#include "laconic/update/kernel/update.hpp"

#include "laconic/base/philox.hpp"

namespace laconic {
namespace {

at::Tensor random(std::int64_t size, const char* name) {
  at::Tensor x = at::empty({size}, at::kDouble);
  fill_normal(derive(key_of(3), name), 0, 0, 1,
              std::span(x.data_ptr<double>(), static_cast<std::size_t>(size)));
  return x;
}

// A matrix and a vector with gradients, as a model would have them.
std::vector<Parameter> some_parameters(at::ScalarType dtype, std::int64_t rows,
                                       std::int64_t columns) {
  std::vector<Parameter> parameters;
  parameters.push_back(
      {"matrix",
       random(rows * columns, "matrix").view({rows, columns}).to(dtype).requires_grad_(true)});
  parameters.push_back({"vector", random(columns, "vector").to(dtype).requires_grad_(true)});
  for (Parameter& p : parameters)
    p.gradient = random(p.value.numel(), (p.name + "'").c_str()).view(p.value.sizes()).to(dtype);
  return parameters;
}

// Each step is too short for a bfloat16, and all of them together are not.
TEST(Optimiser, ManyShortStepsAddUpInTheMasterAndShowInTheCopy) {
  for (const OptimiserKind kind : {OptimiserKind::adamw, OptimiserKind::adam, OptimiserKind::sgd,
                                   OptimiserKind::lion, OptimiserKind::muon}) {
    SCOPED_TRACE(name_in(kOptimiserKindNames, kind));
    auto parameters = some_parameters(at::kFloat, 8, 16);
    for (Parameter& p : parameters) {
      p.value = p.value.detach().clone();
      p.copy = p.value.to(at::kBFloat16);
      p.is_hidden_matrix = p.value.dim() == 2;
    }
    const at::Tensor before = parameters[0].copy.clone();
    OptimiserState state = make_optimiser_state(parameters, kind);
    apply({.kind = kind}, state, parameters, 1e-5, 1);
    EXPECT_GT(parameters[0].copy.eq(before).sum().item<std::int64_t>(), 100) << "of 128";
    for (int i = 1; i < 3000; ++i) apply({.kind = kind}, state, parameters, 1e-5, 1);
    EXPECT_LT(parameters[0].copy.eq(before).sum().item<std::int64_t>(), 40);
    for (const Parameter& p : parameters) EXPECT_TRUE(p.copy.equal(p.value.to(at::kBFloat16)));
  }
}

TEST(Optimiser, AdamWFollowsThePaperElementByElement) {
  const OptimiserSpec adamw{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.2};
  const auto parameters = some_parameters(at::kDouble, 3, 11);
  OptimiserState state = make_optimiser_state(parameters);
  std::vector<at::Tensor> before;
  for (const Parameter& p : parameters) before.push_back(p.value.detach().clone());
  const double lr = 0.1, scale = 0.5;
  for (int t = 1; t <= 3; ++t) apply(adamw, state, parameters, lr, scale);
  EXPECT_EQ(state.updates, 3);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double decay = i == 0 ? adamw.weight_decay : 0;  // not on the vector
    for (std::int64_t e = 0; e < before[i].numel(); ++e) {
      double p = before[i].flatten()[e].item<double>(), m = 0, v = 0;
      const double g = scale * parameters[i].gradient.flatten()[e].item<double>();
      for (int t = 1; t <= 3; ++t) {
        m = adamw.beta1 * m + (1 - adamw.beta1) * g;
        v = adamw.beta2 * v + (1 - adamw.beta2) * g * g;
        p -= lr * decay * p;
        p -= lr * (m / (1 - std::pow(adamw.beta1, t))) /
             (std::sqrt(v / (1 - std::pow(adamw.beta2, t))) + adamw.epsilon);
      }
      EXPECT_NEAR(parameters[i].value.flatten()[e].item<double>(), p, 1e-14);
    }
  }
}

// compressed_adam: what stands in the gradient is the new first moment.
TEST(Optimiser, AGivenMomentLeavesTheSecondAsItIs) {
  const OptimiserSpec adamw{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.2};
  const auto parameters = some_parameters(at::kDouble, 3, 11);
  OptimiserState state = make_optimiser_state(parameters);
  const double lr = 0.1;
  apply(adamw, state, parameters, lr, 1);
  std::vector<at::Tensor> before, second;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    before.push_back(parameters[i].value.detach().clone());
    second.push_back(state.moment2[i].clone());
    parameters[i].gradient.mul_(-0.3);
  }
  apply_moment(adamw, state, parameters, lr);
  EXPECT_EQ(state.updates, 2);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(state.moment1[i].equal(parameters[i].gradient));
    EXPECT_TRUE(state.moment2[i].equal(second[i]));
    const double decay = i == 0 ? adamw.weight_decay : 0;
    for (std::int64_t e = 0; e < before[i].numel(); ++e) {
      const double p = before[i].flatten()[e].item<double>();
      const double m = parameters[i].gradient.flatten()[e].item<double>();
      const double v = second[i].flatten()[e].item<double>();
      const double step = m / (1 - 0.9 * 0.9) / (std::sqrt(v / (1 - 0.99 * 0.99)) + adamw.epsilon);
      EXPECT_NEAR(parameters[i].value.flatten()[e].item<double>(), p - lr * (decay * p + step),
                  1e-14);
    }
  }
}

TEST(Optimiser, LionFollowsThePaperElementByElement) {
  const OptimiserSpec lion{
      .kind = OptimiserKind::lion, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3};
  auto parameters = some_parameters(at::kDouble, 3, 11);
  parameters[1].gradient[4].zero_();  // no gradient, no moment: no step
  OptimiserState state = make_optimiser_state(parameters, OptimiserKind::lion);
  EXPECT_FALSE(state.moment2[0].defined());
  std::vector<at::Tensor> before;
  for (const Parameter& p : parameters) before.push_back(p.value.detach().clone());
  const double lr = 0.1, scale = 0.5;
  const double signs[] = {1, -3, 1, 0.5};  // gradients turn round
  double last = 1;
  for (const double sign : signs) {
    for (Parameter& p : parameters) p.gradient.mul_(sign / last);
    last = sign;
    apply(lion, state, parameters, lr, scale);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    for (std::int64_t e = 0; e < before[i].numel(); ++e) {
      double p = before[i].flatten()[e].item<double>(), m = 0;
      const double base = scale * parameters[i].gradient.flatten()[e].item<double>() / last;
      for (const double sign : signs) {
        const double g = sign * base, c = 0.9 * m + 0.1 * g;
        p = p - lr * ((c > 0) - (c < 0)) - lr * (i == 0 ? 0.3 : 0) * p;
        m = 0.99 * m + 0.01 * g;
      }
      EXPECT_NEAR(parameters[i].value.flatten()[e].item<double>(), p, 1e-14);
    }
}

// Newton-Schulz acts on singular values alone, each by itself: U f(S) V^T, with f five times the
// quintic. So the update can be made from a decomposition instead of products of the matrix.
at::Tensor orthogonalised_by_svd(const at::Tensor& matrix) {
  const auto [u, s, v] = matrix.svd();
  at::Tensor x = s.div(matrix.norm());
  for (int i = 0; i < 5; ++i) x = x.mul(3.4445).add(x.pow(3), -4.7750).add(x.pow(5), 2.0315);
  return u.mm(x.diag()).mm(v.t());
}

TEST(Optimiser, MuonStepsAlongTheSingularVectorsOfItsMomentum) {
  for (const auto& [rows, columns] : {std::pair{3, 11}, {12, 4}, {6, 6}})
    for (const MuonScale scale : {MuonScale::match_adamw, MuonScale::original}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const OptimiserSpec muon{.kind = OptimiserKind::muon,
                               .weight_decay = 0.2,
                               .muon_rate = 4,
                               .muon_momentum = 0.9,
                               .muon_scale = scale};
      auto parameters = some_parameters(at::kDouble, rows, columns);
      parameters[0].is_hidden_matrix = true;
      const at::Tensor vector_before = parameters[1].value.detach().clone();
      OptimiserState state = make_optimiser_state(parameters, OptimiserKind::muon);
      EXPECT_FALSE(state.moment2[0].defined());
      EXPECT_TRUE(state.moment2[1].defined());
      at::Tensor w = parameters[0].value.detach().clone(), m = at::zeros_like(w);
      const double lr = 0.01;
      for (int t = 0; t < 3; ++t) {
        parameters[0].gradient =
            random(rows * columns, std::to_string(t).c_str()).view({rows, columns});
        const at::Tensor g = parameters[0].gradient.mul(0.5);
        m = m.mul(0.9).add(g);
        const double by_shape = scale == MuonScale::match_adamw
                                    ? 0.2 * std::sqrt(std::max(rows, columns))
                                    : std::sqrt(std::max(1.0, double(columns) / rows));
        w = w.sub(w, 4 * lr * 0.2).sub(orthogonalised_by_svd(g.add(m, 0.9)), 4 * lr * by_shape);
        apply(muon, state, parameters, lr, 0.5);
        EXPECT_LT(parameters[0].value.detach().sub(w).abs().max().item<double>(), 1e-12);
      }
      // The vector goes by AdamW.
      auto others = some_parameters(at::kDouble, rows, columns);
      others.erase(others.begin());
      OptimiserState adamw = make_optimiser_state(others);
      for (int t = 0; t < 3; ++t) apply({.weight_decay = 0.2}, adamw, others, lr, 0.5);
      EXPECT_TRUE(parameters[1].value.equal(others[0].value));
      EXPECT_FALSE(parameters[1].value.equal(vector_before));
    }
}

TEST(Optimiser, AMatrixWithoutAnySlopeStaysAsItIsUnderMuon) {
  auto parameters = some_parameters(at::kFloat, 4, 3);
  parameters[0].is_hidden_matrix = true;
  parameters[0].gradient.zero_();
  const at::Tensor before = parameters[0].value.detach().clone();
  OptimiserState state = make_optimiser_state(parameters, OptimiserKind::muon);
  apply({.kind = OptimiserKind::muon, .weight_decay = 0}, state, parameters, 0.1, 1);
  EXPECT_TRUE(parameters[0].value.equal(before));
}

TEST(Optimiser, EveryInstructionSetGivesTheSameBits) {
  for (const std::int64_t size : {1, 7, 8, 15, 16, 33, 100}) {
    std::vector<float> expected;
    for_each_target([&] {
      const at::Tensor p = random(size, "p").to(at::kFloat), g = random(size, "g").to(at::kFloat),
                       m = random(size, "m").to(at::kFloat),
                       v = random(size, "v").abs().to(at::kFloat);
      kernel::update<float>().adamw(p.data_ptr<float>(), g.data_ptr<float>(), m.data_ptr<float>(),
                                    v.data_ptr<float>(), size,
                                    {.lr = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .epsilon = 1e-8,
                                     .weight_decay = 0.1,
                                     .correction1 = 0.1,
                                     .correction2 = 0.05,
                                     .gradient_scale = 0.7});
      const std::vector<float> result(p.data_ptr<float>(), p.data_ptr<float>() + size);
      if (expected.empty()) expected = result;
      EXPECT_EQ(result, expected) << size;
    });
  }
}

TEST(Optimiser, EveryInstructionSetGivesTheSameBitsForTheOtherAlgorithms) {
  for (const std::int64_t size : {1, 7, 16, 33, 100}) {
    std::vector<float> expected;
    for_each_target([&] {
      std::vector<float> result;
      const auto take = [&](const at::Tensor& x) {
        result.insert(result.end(), x.data_ptr<float>(), x.data_ptr<float>() + size);
      };
      const at::Tensor g = random(size, "g").to(at::kFloat);
      const auto new_ones = [&] {
        return std::array{random(size, "p").to(at::kFloat), random(size, "m").to(at::kFloat),
                          random(size, "v").abs().to(at::kFloat)};
      };
      const kernel::Update<float>& update = kernel::update<float>();
      for (const bool nesterov : {false, true}) {
        const auto [p, m, v] = new_ones();
        update.sgd(p.data_ptr<float>(), g.data_ptr<float>(), m.data_ptr<float>(), size,
                   {.lr = 0.01,
                    .momentum = 0.9,
                    .weight_decay = 0.1,
                    .nesterov = nesterov,
                    .gradient_scale = 0.7});
        take(p), take(m);
      }
      {
        const auto [p, m, v] = new_ones();
        update.lion(p.data_ptr<float>(), g.data_ptr<float>(), m.data_ptr<float>(), size,
                    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
        take(p), take(m);
      }
      {
        const auto [p, m, v] = new_ones();
        update.adam(p.data_ptr<float>(), g.data_ptr<float>(), m.data_ptr<float>(),
                    v.data_ptr<float>(), size,
                    {.lr = 0.01,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .weight_decay = 0.1,
                     .correction1 = 0.1,
                     .correction2 = 0.05,
                     .gradient_scale = 0.7});
        take(p), take(m), take(v);
      }
      if (expected.empty()) expected = result;
      EXPECT_EQ(result, expected) << size;
    });
  }
}

TEST(Optimiser, TheNormDoesNotDependOnTheNumberOfThreads) {
  const auto parameters = some_parameters(at::kFloat, 700, 301);
  double sum = 0;
  for (const Parameter& p : parameters)
    sum += p.gradient.to(at::kDouble).square().sum().item<double>();
  const int before = at::get_num_threads();
  std::vector<double> norms;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    norms.push_back(global_norm(parameters));
  }
  at::set_num_threads(before);
  EXPECT_NEAR(norms[0], std::sqrt(sum), 1e-9 * norms[0]);
  EXPECT_EQ(norms[1], norms[0]);
  EXPECT_EQ(norms[2], norms[0]);
}

TEST(Optimiser, AParameterWithoutAGradientStaysAsItIs) {
  auto parameters = some_parameters(at::kFloat, 2, 3);
  parameters[0].gradient.reset();
  const at::Tensor before = parameters[0].value.detach().clone();
  OptimiserState state = make_optimiser_state(parameters);
  apply({}, state, parameters, 0.1, 1);
  EXPECT_TRUE(parameters[0].value.equal(before));
  EXPECT_NEAR(global_norm(parameters), parameters[1].gradient.norm().item<double>(), 1e-6);
}

at::Tensor orthonormal(std::int64_t rank, std::int64_t width) {
  at::Tensor rows = at::zeros({rank, width}, at::kDouble);
  for (std::int64_t i = 0; i < rank; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      rows.data_ptr<double>()[i * width + j] =
          std::sqrt(2.0 / static_cast<double>(width)) *
          std::cos((static_cast<double>(j) + 0.5) * static_cast<double>(i + 1) * std::numbers::pi /
                   static_cast<double>(width));
  return rows;
}

double distance_from_orthonormal(const at::Tensor& rows) {
  return rows.mm(rows.t()).sub(at::eye(rows.size(0), at::kDouble)).abs().max().item<double>();
}

// Energy of rows outside the basis: its minimum is the space of the largest eigenvalues.
TEST(Optimiser, ABasisKeepsOrthonormalRowsAndFindsTheDirectionsOfTheEnergy) {
  const at::NoGradGuard no_grad;
  const std::int64_t rank = 3, width = 10;
  at::Tensor energy = at::zeros({width}, at::kDouble);
  for (std::int64_t i = 0; i < width; ++i) energy.data_ptr<double>()[i] = i < rank ? 1.0 : 0.1;
  std::vector<Parameter> parameters = {
      {.name = "basis", .value = orthonormal(rank, width), .is_basis = true}};
  OptimiserState state = make_optimiser_state(parameters);
  const auto kept = [&] { return parameters[0].value.square().mul(energy).sum().item<double>(); };
  const double before = kept();
  for (int step = 0; step < 400; ++step) {
    parameters[0].gradient = parameters[0].value.mul(energy).mul(-2);
    apply({}, state, parameters, 0.2, 1);
    ASSERT_LT(distance_from_orthonormal(parameters[0].value), 1e-12) << step;
  }
  EXPECT_LT(before, 2.5);
  EXPECT_GT(kept(), 2.95);
}

}  // namespace
}  // namespace laconic
