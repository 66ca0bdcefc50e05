#include "laconic/train/predict.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "laconic/model/model.hpp"
#include "laconic/train/answers.hpp"

namespace laconic {
namespace {

Weights bert_with(BertHead head) {
  Weights weights = make_weights(BertShape{.layers = 1,
                                           .width = 12,
                                           .heads = 2,
                                           .hidden = 20,
                                           .context = 12,
                                           .vocabulary = 17,
                                           .head = head,
                                           .labels = 3},
                                 3, at::TensorOptions().dtype(at::kDouble));
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (p.value.dim() == 2) p.value.mul_(20);
  return weights;
}

const std::vector<PredictInput> kInputs = {{.ids = {2, 7, 4, 9, 3}, .types = {0, 0, 0, 1, 1}},
                                           {.ids = {2, 4, 3}},
                                           {.ids = {2, 5, 6, 7, 8, 4, 10, 11, 3}}};

TEST(Predict, AnAnswerDoesNotDependOnThoseBesideIt) {
  for (const BertHead head :
       {BertHead::masked, BertHead::classify, BertHead::regress, BertHead::span}) {
    const Weights weights = bert_with(head);
    const auto together = predict(weights, kInputs, {.mask = 4, .best = 17});
    for (std::size_t i = 0; i < kInputs.size(); ++i) {
      const auto alone = predict(weights, {kInputs[i]}, {.mask = 4, .best = 17})[0];
      ASSERT_EQ(alone.logits.size(), together[i].logits.size());
      for (std::size_t k = 0; k < alone.logits.size(); ++k)
        EXPECT_NEAR(alone.logits[k], together[i].logits[k], 1e-12);
      EXPECT_EQ(alone.begin, together[i].begin);
      EXPECT_NEAR(alone.log_probability, together[i].log_probability, 1e-12);
    }
  }
}

TEST(Predict, EveryHiddenTokenIsGuessedByItsLogits) {
  const Weights weights = bert_with(BertHead::masked);
  const ModelAnswer found = predict(weights, {kInputs[2]}, {.mask = 4, .best = 3})[0];
  ASSERT_EQ(found.guesses.size(), 1u);
  EXPECT_EQ(found.guesses[0].position, 5u);
  const at::Tensor ids = at::tensor(kInputs[2].ids).unsqueeze(0);
  const at::Tensor log_p =
      forward_logits(weights, Batch{{"ids", ids},
                                    {"types", ids.mul(0)},
                                    {"length", at::tensor(std::int64_t{9}).view({1, 1})}})[5]
          .log_softmax(-1);
  ASSERT_EQ(found.guesses[0].best.size(), 3u);
  EXPECT_EQ(found.guesses[0].best[0].first, log_p.argmax().item<std::int64_t>());
  double before = 0;
  for (const auto& [id, value] : found.guesses[0].best) {
    EXPECT_NEAR(value, log_p[id].item<double>(), 1e-12);
    EXPECT_LE(value, before);
    before = value;
  }
}

TEST(Predict, ATextIsAsLikelyAsItsTokensOneAfterTheOther) {
  const Weights weights = make_weights(LlamaShape{.layers = 1,
                                                  .width = 12,
                                                  .heads = 2,
                                                  .key_heads = 1,
                                                  .head_width = 6,
                                                  .hidden = 20,
                                                  .context = 12,
                                                  .vocabulary = 17},
                                       3, at::TensorOptions().dtype(at::kDouble));
  const ModelAnswer found = predict(weights, {kInputs[0]}, {})[0];
  const at::Tensor log_p =
      forward_logits(weights, at::tensor(kInputs[0].ids).unsqueeze(0)).log_softmax(-1);
  ASSERT_EQ(found.log_probabilities.size(), 4u);
  double sum = 0;
  for (std::int64_t t = 0; t < 4; ++t) {
    const double expected =
        log_p[t][kInputs[0].ids[static_cast<std::size_t>(t) + 1]].item<double>();
    EXPECT_NEAR(found.log_probabilities[static_cast<std::size_t>(t)], expected, 1e-12);
    sum += expected;
  }
  EXPECT_NEAR(found.log_probability, sum, 1e-12);
}

TEST(Predict, WhatTheModelDoesNotKnowIsRefused) {
  const Weights weights = bert_with(BertHead::classify);
  EXPECT_TRUE(check(weights, kInputs[0]).empty());
  EXPECT_EQ(check(weights, {.ids = {}}).size(), 1u);
  EXPECT_EQ(check(weights, {.ids = std::vector<std::int64_t>(13, 1)}).size(), 1u);
  EXPECT_EQ(check(weights, {.ids = {17}}).size(), 1u);
  EXPECT_EQ(check(weights, {.ids = {1, 2}, .types = {0}}).size(), 1u);
  EXPECT_EQ(check(weights, {.ids = {1}, .types = {2}}).size(), 1u);
}

// [CLS] q q [SEP] c c c [SEP]: the answer lies in c, or is position 0.
TEST(Answers, ASpanLiesInTheSecondTextOrIsNone) {
  const std::vector<std::int64_t> types = {0, 0, 0, 0, 1, 1, 1, 1};
  at::Tensor ends = at::zeros({2, 8}, at::kDouble);
  ends[0][2] = 50;  // the question
  ends[0][5] = 9;
  ends[1][7] = 50;  // the end
  ends[1][4] = 5;   // before where it begins
  ends[1][6] = 8;
  const AnswerRange found = best_answer(ends, types, 8);
  EXPECT_EQ(found.begin, 5);
  EXPECT_EQ(found.end, 6);
  ends[0][0] = 60;
  ends[1][0] = 60;
  EXPECT_EQ(best_answer(ends, types, 8).begin, 0);
  EXPECT_EQ(best_answer(ends, types, 8).end, 0);
  const at::Tensor broken = at::full({2, 8}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  EXPECT_EQ(best_answer(broken, types, 8).begin, -1);
}

}  // namespace
}  // namespace laconic
