// Optimisers against torch.optim: tools/make_optimiser_golden.py says how tests/golden/optimiser
// was made.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "laconic/data/test_data.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

struct ParityCase {
  const char* name;
  OptimiserSpec spec;
};
const ParityCase kParityCases[] = {
    {"sgd", {.kind = OptimiserKind::sgd, .momentum = 0}},
    {"momentum", {.kind = OptimiserKind::sgd, .momentum = 0.9}},
    {"nesterov", {.kind = OptimiserKind::sgd, .momentum = 0.8, .nesterov = true}},
    {"adam", {.kind = OptimiserKind::adam}},
    {"adamw", {.kind = OptimiserKind::adamw}}};

TEST(OptimiserParity, SixStepsOfEachAreThoseOfPyTorch) {
  const SafetensorsFile file(source_root() + "/tests/golden/optimiser/expected.safetensors");
  const auto expected = [&](const std::string& name) {
    const SafetensorsEntry& entry = file.at(name);
    return tensor_from_bytes(file.bytes(entry), entry.dtype, entry.shape);
  };
  const at::Tensor rates = expected("rates");
  for (const ParityCase& parity : kParityCases) {
    SCOPED_TRACE(parity.name);
    std::vector<Parameter> parameters;
    for (const char* name : {"matrix", "vector"})
      parameters.push_back({name, expected(name).clone().requires_grad_(true)});
    OptimiserState state = make_optimiser_state(parameters, parity.spec.kind);
    ASSERT_EQ(rates.numel(), 6);
    for (std::int64_t step = 0; step < rates.numel(); ++step) {
      // Twice the gradient at half the scale: what clipping does comes first.
      for (Parameter& p : parameters)
        p.gradient = expected("gradients." + p.name)[step].mul(2).contiguous();
      apply(parity.spec, state, parameters, rates[step].item<double>(), 0.5);
    }
    for (const Parameter& p : parameters) {
      const at::Tensor want = expected(std::string(parity.name) + "." + p.name);
      EXPECT_LT((p.value.detach() - want).abs().max().item<double>(), 1e-14) << p.name;
      EXPECT_GT((want - expected(p.name)).abs().max().item<double>(), 1e-3) << p.name;
    }
  }
}

}  // namespace
}  // namespace laconic
