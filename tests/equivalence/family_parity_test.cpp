// Every family and its optimiser against PyTorch's own modules: tools/make_gpt_golden.py and its
// siblings say how the folders in tests/golden were made.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/model/decode.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

constexpr const char* kCases[] = {
    "gpt/three-heads",    "gpt/one-head", "gpt/two-tiles",    "llama/grouped",     "llama/biased",
    "llama/normed-heads", "bert/masked",  "bert/pretraining", "bert/classify",     "bert/regress",
    "bert/span",          "seq2seq/pre",  "seq2seq/post",     "seq2seq/two-tiles", "seq2seq/input",
    "lstm/recurrent",     "lstm/output",  "lstm/plain",       "gnmt/four",         "gnmt/two"};

struct Precision {
  at::ScalarType dtype;
  double tolerance;
};
constexpr Precision kSingle{at::kFloat, 1e-5};
// Sums of more and longer terms, and norms of rows that nearly vanish.
constexpr Precision kSingleOfOthers{at::kFloat, 1e-4};
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
  bool has(const std::string& name) const { return expected_.find(name) != nullptr; }
  Batch batch() const {
    Batch batch;
    for (const char* field : {"ids", "targets", "types", "length", "next", "label", "score",
                              "start", "end", "source", "source_length"})
      if (has(field)) batch.add(field, expected(field));
    return batch;
  }
  Pass pass() const {
    return {.label_smoothing = has("smoothing") ? expected("smoothing").item<double>() : 0};
  }

 private:
  std::string folder_;
  SafetensorsFile expected_;
};

// Largest difference, as a part of the largest expected number, or of `least`: gradients that are
// zero but for rounding, such as that of a key's bias, have no such part. Nor has a span's padding.
double relative_error(const at::Tensor& found, const at::Tensor& expected, double least = 0) {
  const at::Tensor numbers = found.detach().to(at::kDouble);
  const at::Tensor difference = numbers.masked_fill(numbers.isinf(), 0) - expected;
  return difference.abs().max().item<double>() /
         std::max(expected.abs().max().item<double>(), least);
}

void expect_near(const at::Tensor& found, const Golden& golden, const std::string& name,
                 Precision precision, double least = 0) {
  const at::Tensor expected = golden.expected(name);
  ASSERT_TRUE(found.defined()) << name;
  ASSERT_EQ(found.sizes(), expected.sizes()) << name;
  EXPECT_LT(relative_error(found, expected, least), precision.tolerance) << name;
}

void expect_near(double found, double expected, Precision precision, const std::string& name) {
  EXPECT_LT(std::abs(found - expected) / std::abs(expected), precision.tolerance) << name;
}

// Zero, but for rounding.
bool is_rounding(const at::Tensor& gradient) {
  return gradient.abs().max().item<double>() < 1e-14;
}

template <class Body>
void for_each_case(const Body& body) {
  for (const char* name : kCases) {
    const bool is_gpt = std::string(name).starts_with("gpt/");
    for (const Precision precision : {is_gpt ? kSingle : kSingleOfOthers, kDouble}) {
      SCOPED_TRACE(std::string(name) + (precision.dtype == at::kFloat ? ", float" : ", double"));
      body(Golden(name), precision);
    }
  }
}

TEST(FamilyParity, LogitsAreThoseOfPyTorch) {
  for_each_case([](const Golden& golden, Precision precision) {
    const Weights weights = golden.weights(precision);
    at::Tensor logits;
    if (golden.has("label") || golden.has("score") || golden.has("start"))
      forward_loss(weights, golden.batch(), {.predictions = &logits});
    else
      logits = forward_logits(weights, golden.batch());
    expect_near(logits, golden, "logits", precision);
  });
}

TEST(FamilyParity, DecodingTokenByTokenGivesThemToo) {
  for_each_case([](const Golden& golden, Precision precision) {
    Weights weights = golden.weights(precision);
    if (!is_causal(weights.family)) {
      EXPECT_THROW(Decoder{weights}, ConfigError);
      return;
    }
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
          forward_backward(weights, golden.batch(), golden.pass(), 1, {.recompute = recompute});
      expect_near(loss, golden.expected("loss").item<double>(), precision, "loss");
      expect_near(forward_loss(weights, golden.batch(), golden.pass()), loss, precision,
                  "forward_loss");
      const double norm = golden.expected("step.norms")[0].item<double>();
      for (const Parameter& p : weights.parameters) {
        const std::string name = "gradient." + p.name;
        expect_near(p.gradient, golden, name, precision,
                    is_rounding(golden.expected(name)) ? 1e-3 * norm : 0);
      }
    });
  }
}

// clip_grad_norm_ adds 1e-6 to the norm; train_step does not, hence the scale by hand.
double clip_scale(double norm) {
  return std::min(1.0, 1.0 / (norm + 1e-6));
}

// A key's bias adds the same to all scores of a query, which softmax ignores: its true gradient is
// zero, unless keys are rotated. So are those of what adds the same to all ends of a span. What is
// computed is rounding, about 1e-17 and different for every implementation, and AdamW divides it by
// epsilon = 1e-8. So after steps whose rates sum to 0.03 no two agree closer than some 1e-10 there,
// and only there.
constexpr double kRoundingTolerance = 1e-9;

void expect_updated(const Parameter& p, const Golden& golden) {
  const std::string name = "updated." + p.name;
  // GPT-2 has queries, keys and values in one.
  const std::int64_t parts = p.name.ends_with("attn.c_attn.bias") ? 3 : 1;
  const auto found = p.value.detach().chunk(parts), expected = golden.expected(name).chunk(parts);
  const auto gradient = golden.expected("gradient." + p.name).chunk(parts);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LT(relative_error(found[i], expected[i]),
              is_rounding(gradient[i]) ? kRoundingTolerance : kDouble.tolerance)
        << name << ", part " << i;
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
      const double loss = forward_backward(weights, golden.batch(), golden.pass(), 1);
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
