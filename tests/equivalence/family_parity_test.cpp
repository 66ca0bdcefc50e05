// Every family and its optimiser against PyTorch's own modules: tools/make_gpt_golden.py and its
// siblings say how the folders in tests/golden were made.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "laconic/data/test_data.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/model/decode.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

constexpr const char* kCases[] = {"gpt/three-heads", "gpt/one-head",  "gpt/two-tiles",
                                  "llama/grouped",   "llama/biased", "llama/normed-heads"};

struct Precision {
  at::ScalarType dtype;
  double tolerance;
};
constexpr Precision kSingle{at::kFloat, 1e-5};
constexpr Precision kDouble{at::kDouble, 1e-11};

// One folder of tests/golden.
class Golden {
 public:
  explicit Golden(const std::string& name)
      : folder_(source_root() + "/tests/golden/" + name),
        expected_(folder_ + "/expected.safetensors") {}

  Weights weights(Precision precision) const {
    return read_model(folder_, at::TensorOptions().dtype(precision.dtype));
  }
  at::Tensor expected(const std::string& name) const {
    const SafetensorsEntry& entry = expected_.at(name);
    return tensor_from_bytes(expected_.bytes(entry), entry.dtype, entry.shape);
  }
  Batch batch() const { return {{"ids", expected("ids")}, {"targets", expected("targets")}}; }

 private:
  std::string folder_;
  SafetensorsFile expected_;
};

// Largest difference, as a part of the largest expected number.
double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor difference = found.detach().to(at::kDouble) - expected;
  return (difference.abs().max() / expected.abs().max()).item<double>();
}

void expect_near(const at::Tensor& found, const Golden& golden, const std::string& name,
                 Precision precision) {
  const at::Tensor expected = golden.expected(name);
  ASSERT_TRUE(found.defined()) << name;
  ASSERT_EQ(found.sizes(), expected.sizes()) << name;
  EXPECT_LT(relative_error(found, expected), precision.tolerance) << name;
}

void expect_near(double found, double expected, Precision precision, const std::string& name) {
  EXPECT_LT(std::abs(found - expected) / std::abs(expected), precision.tolerance) << name;
}

template <class Body>
void for_each_case(const Body& body) {
  for (const char* name : kCases) {
    for (const Precision precision : {kSingle, kDouble}) {
      SCOPED_TRACE(std::string(name) + (precision.dtype == at::kFloat ? ", float" : ", double"));
      body(Golden(name), precision);
    }
  }
}

TEST(FamilyParity, LogitsAreThoseOfPyTorch) {
  for_each_case([](const Golden& golden, Precision precision) {
    const at::Tensor logits = forward_logits(golden.weights(precision), golden.expected("ids"));
    expect_near(logits, golden, "logits", precision);
  });
}

TEST(FamilyParity, DecodingTokenByTokenGivesThemToo) {
  for_each_case([](const Golden& golden, Precision precision) {
    Weights weights = golden.weights(precision);
    const at::Tensor ids = golden.expected("ids"), expected = golden.expected("logits");
    Decoder decoder(weights);  // reads the first sample
    for (std::int64_t t = 0; t < ids.size(1); ++t) {
      const at::Tensor logits = decoder.read(std::span(ids.data_ptr<std::int64_t>() + t, 1));
      EXPECT_LT(relative_error(logits, expected[t]), precision.tolerance) << "token " << t;
    }
  });
}

TEST(FamilyParity, LossAndEveryGradientAreThoseOfPyTorch) {
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute ? "recompute" : "keep");
    for_each_case([&](const Golden& golden, Precision precision) {
      Weights weights = golden.weights(precision);
      const double loss =
          forward_backward(weights, golden.batch(), {}, 1, {.recompute = recompute});
      expect_near(loss, golden.expected("loss").item<double>(), precision, "loss");
      expect_near(forward_loss(weights, golden.batch()), loss, precision, "forward_loss");
      for (const Parameter& p : weights.parameters)
        expect_near(p.gradient, golden, "gradient." + p.name, precision);
    });
  }
}

// clip_grad_norm_ adds 1e-6 to the norm; train_step does not, hence the scale by hand.
double clip_scale(double norm) {
  return std::min(1.0, 1.0 / (norm + 1e-6));
}

// A key's bias adds the same to all scores of a query, which softmax ignores: its true gradient is
// zero. What is computed is rounding, about 1e-17 and different for every implementation, and
// AdamW divides it by epsilon = 1e-8. So after steps whose rates sum to 0.03 no two agree closer
// than some 1e-10 there, and only there.
constexpr double kKeyBiasTolerance = 1e-9;

void expect_updated(const Parameter& p, const Golden& golden) {
  const std::string name = "updated." + p.name;
  if (p.name.ends_with("k_proj.bias"))
    return expect_near(p.value, golden, name, {at::kDouble, kKeyBiasTolerance});
  if (!p.name.ends_with("attn.c_attn.bias")) return expect_near(p.value, golden, name, kDouble);
  const auto found = p.value.detach().chunk(3), expected = golden.expected(name).chunk(3);
  EXPECT_LT(relative_error(found[0], expected[0]), kDouble.tolerance) << name << ", queries";
  EXPECT_LT(relative_error(found[1], expected[1]), kKeyBiasTolerance) << name << ", keys";
  EXPECT_LT(relative_error(found[2], expected[2]), kDouble.tolerance) << name << ", values";
}

TEST(FamilyParity, FiveStepsOfAdamWAreThoseOfPyTorch) {
  const OptimiserSpec adamw{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (const char* name : kCases) {
    SCOPED_TRACE(name);
    const Golden golden(name);
    Weights weights = golden.weights(kDouble);
    OptimiserState state = make_optimiser_state(weights.parameters);
    const at::Tensor rates = golden.expected("step.rates"), losses = golden.expected("step.losses"),
                     norms = golden.expected("step.norms");
    ASSERT_EQ(rates.numel(), 5);
    for (std::int64_t step = 0; step < rates.numel(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const double loss = forward_backward(weights, golden.batch(), {}, 1);
      const double norm = global_norm(weights.parameters);
      expect_near(loss, losses[step].item<double>(), kDouble, "loss");
      expect_near(norm, norms[step].item<double>(), kDouble, "norm");
      apply(adamw, state, weights.parameters, rates[step].item<double>(), clip_scale(norm));
      clear_gradients(weights);
    }
    for (const Parameter& p : weights.parameters) expect_updated(p, golden);
  }
}

}  // namespace
}  // namespace laconic
