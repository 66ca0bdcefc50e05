#include "laconic/update/optimiser.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

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

TEST(Optimiser, AdamWFollowsThePaperElementByElement) {
  const AdamW adamw{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.2};
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

}  // namespace
}  // namespace laconic
