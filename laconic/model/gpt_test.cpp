#include "laconic/model/gpt.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/model/decode.hpp"
#include "laconic/model/test_gpt.hpp"

namespace laconic {
namespace {

TEST(Gpt, ParametersDependOnSeedNameAndIndexAlone) {
  const Weights small = make_tiny_weights(at::kDouble);
  GptShape deeper = kTinyShape;
  deeper.vocabulary = 50;  // more rows: the first ones stay as they were
  const Weights large = make_weights(deeper, 11, at::TensorOptions().dtype(at::kDouble));
  EXPECT_TRUE(large.parameters[0].value.narrow(0, 0, 31).equal(small.parameters[0].value));
  EXPECT_TRUE(large.parameters[4].value.equal(small.parameters[4].value));
  const Weights rounded = make_tiny_weights(at::kFloat);
  EXPECT_TRUE(rounded.parameters[0].value.equal(small.parameters[0].value.to(at::kFloat)));
}

TEST(Gpt, ParametersOfOneShapeBeginApart) {
  const Weights weights = make_tiny_weights(at::kDouble);
  const auto drawn = [&](const char* name) {
    const auto found = std::ranges::find(weights.parameters, name, &Parameter::name);
    return found == weights.parameters.end() ? at::Tensor() : found->value;
  };
  EXPECT_FALSE(drawn("h.0.attn.c_attn.weight").equal(drawn("h.1.attn.c_attn.weight")));
  EXPECT_FALSE(drawn("h.0.mlp.c_fc.weight").equal(drawn("h.1.mlp.c_fc.weight")));
}

TEST(Gpt, ALaterTokenDoesNotChangeAnEarlierLogit) {
  const Weights weights = make_tiny_weights(at::kDouble);
  at::Tensor ids = some_ids(1, kTinyShape.context);
  const at::Tensor before = forward_logits(weights, ids);
  ids[0][7] = (ids[0][7].item<std::int64_t>() + 1) % kTinyShape.vocabulary;
  const at::Tensor after = forward_logits(weights, ids);
  EXPECT_TRUE(before.narrow(0, 0, 7).equal(after.narrow(0, 0, 7)));
  EXPECT_FALSE(before[7].equal(after[7]));
}

// What dropout leaves of one text's embedding: a row for each key.
at::Tensor embedded(const Weights& weights, const std::vector<Key>& keys) {
  const at::Tensor ids = some_ids(1, kTinyShape.context);
  const auto samples = static_cast<std::int64_t>(keys.size());
  return forward_block(weights, 0, {}, {{"ids", ids.repeat({samples, 1})}}, {0.5, keys})[0].view(
      {samples, -1});
}

TEST(Gpt, DropoutWithoutAStepIsTheSamplesOwn) {
  const Weights weights = make_tiny_weights(at::kDouble);
  const std::vector<std::int64_t> ids{3, 4}, swapped{4, 3};
  const at::Tensor masks = embedded(weights, dropout_keys(1, std::nullopt, ids));
  EXPECT_FALSE(masks[0].equal(masks[1]));
  const at::Tensor again = embedded(weights, dropout_keys(1, std::nullopt, swapped));
  EXPECT_TRUE(masks[0].equal(again[1]));
  EXPECT_TRUE(masks[1].equal(again[0]));
  EXPECT_FALSE(masks.equal(embedded(weights, dropout_keys(2, std::nullopt, ids))));
  for (std::int64_t step = 0; step < 5; ++step) {
    const at::Tensor of_step = embedded(weights, dropout_keys(1, step, ids));
    EXPECT_FALSE(of_step.equal(masks)) << step;
    EXPECT_FALSE(of_step.equal(embedded(weights, dropout_keys(1, step + 1, ids)))) << step;
  }
}

TEST(Gpt, DropoutOfASampleDiffersFromLayerToLayer) {
  Weights weights = make_tiny_weights(at::kDouble);
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    p.value.fill_(0.1);  // layers are alike, but for their masks
  const Batch batch{{"ids", some_ids(1, kTinyShape.context)}};
  Pass pass{.dropout = 0.5};
  const at::Tensor x = at::ones({1, kTinyShape.context, kTinyShape.width}, at::kDouble);
  const auto output = [&](std::int64_t block) {
    return forward_block(weights, block, {x}, batch, pass)[0];
  };
  EXPECT_TRUE(output(1).equal(output(2)));
  pass.sample_keys = dropout_keys(1, std::nullopt, {3});
  EXPECT_TRUE(output(1).equal(output(1)));
  EXPECT_FALSE(output(1).equal(output(2)));
}

TEST(Gpt, DecoderGivesTheLogitsOfTheWholeText) {
  const Weights weights = make_tiny_weights(at::kDouble);
  const at::Tensor ids = some_ids(1, kTinyShape.context);
  const at::Tensor all = forward_logits(weights, ids);
  const std::span<const std::int64_t> text(ids.data_ptr<std::int64_t>(), 10);
  for (const std::size_t prompt : {1, 2, 5, 10}) {
    Decoder decoder(weights);
    at::Tensor logits = decoder.read(text.first(prompt));
    for (std::size_t at = prompt; at < text.size(); ++at) {
      EXPECT_LT((logits - all[static_cast<std::int64_t>(at - 1)]).abs().max().item<double>(),
                1e-13);
      logits = decoder.read(text.subspan(at, 1));
    }
    EXPECT_LT((logits - all[9]).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(decoder.length(), 10);
    EXPECT_ANY_THROW(decoder.read(text.first(1)));
  }
}

}  // namespace
}  // namespace laconic
