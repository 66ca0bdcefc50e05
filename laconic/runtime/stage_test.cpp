#include "laconic/runtime/stage.hpp"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "laconic/model/test_gpt.hpp"

namespace laconic {
namespace {

Microbatch some_microbatch(std::int64_t samples, double dropout = 0) {
  const at::Tensor ids = some_ids(samples, kTinyShape.context + 1);
  std::vector<std::int64_t> names;
  for (std::int64_t s = 0; s < samples; ++s) names.push_back(100 + s);
  return {ids.narrow(1, 0, kTinyShape.context).contiguous(),
          ids.narrow(1, 1, kTinyShape.context).contiguous(), dropout_keys(1, 0, names), dropout};
}

std::vector<at::Tensor> gradients(const Gpt& gpt) {
  std::vector<at::Tensor> all;
  for (const Parameter& p : gpt.parameters) all.push_back(p.value.grad());
  return all;
}

TEST(Stage, GradientsAreThoseOfFiniteDifferences) {
  const Gpt gpt = make_tiny_gpt(at::kDouble);
  const Microbatch microbatch = some_microbatch(2, 0.2);
  forward_backward(gpt, microbatch, 1);
  for (const Parameter& p : gpt.parameters) {
    const double step = 1e-5;
    for (const std::int64_t element : {std::int64_t{0}, p.value.numel() / 2, p.value.numel() - 1}) {
      double* x = p.value.data_ptr<double>() + element;
      const double before = *x;
      *x = before + step;
      const double above = forward_loss(gpt, microbatch);
      *x = before - step;
      const double below = forward_loss(gpt, microbatch);
      *x = before;
      const double expected = (above - below) / (2 * step);
      EXPECT_NEAR(p.value.grad().flatten()[element].item<double>(), expected,
                  1e-8 + 1e-5 * std::abs(expected))
          << p.name << "[" << element << "]";
    }
  }
}

TEST(Stage, RecomputationChangesNoBit) {
  for (const double dropout : {0.0, 0.3}) {
    const Gpt kept = make_tiny_gpt(at::kFloat), again = make_tiny_gpt(at::kFloat);
    const Microbatch microbatch = some_microbatch(3, dropout);
    EXPECT_EQ(forward_backward(kept, microbatch, 0.5),
              forward_backward(again, microbatch, 0.5, {.recompute = true}));
    const auto a = gradients(kept), b = gradients(again);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].equal(b[i])) << kept.parameters[i].name;
  }
}

TEST(Stage, MicrobatchesAddUpToTheBatch) {
  const Gpt whole = make_tiny_gpt(at::kDouble), parts = make_tiny_gpt(at::kDouble);
  const Microbatch batch = some_microbatch(4, 0.1);
  const double loss = forward_backward(whole, batch, 1);
  double sum = 0;
  for (std::int64_t s = 0; s < 4; ++s) {
    const auto at = static_cast<std::size_t>(s);
    sum += 0.25 * forward_backward(parts,
                                   {batch.ids.narrow(0, s, 1),
                                    batch.targets.narrow(0, s, 1),
                                    {batch.sample_keys[at]},
                                    batch.dropout},
                                   0.25);
  }
  EXPECT_NEAR(sum, loss, 1e-13);
  const auto a = gradients(whole), b = gradients(parts);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-13) << whole.parameters[i].name;
}

}  // namespace
}  // namespace laconic
