#include "laconic/train/generate.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "laconic/model/model.hpp"

namespace laconic {
namespace {

const std::vector<double> kLogits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};

// How often each id is picked over an even grid of draws.
std::map<std::int64_t, double> shares(const SamplingRule& rule) {
  std::map<std::int64_t, double> count;
  constexpr int kDraws = 1000;
  for (int i = 0; i < kDraws; ++i)
    count[pick_token(kLogits, rule, (i + 0.5) / kDraws)] += 1.0 / kDraws;
  return count;
}

TEST(PickToken, FollowsTheProbabilities) {
  const auto share = shares({});
  EXPECT_NEAR(share.at(0), 0.1, 2e-3);
  EXPECT_NEAR(share.at(1), 0.4, 2e-3);
  EXPECT_NEAR(share.at(2), 0.2, 2e-3);
  EXPECT_NEAR(share.at(3), 0.3, 2e-3);
}

TEST(PickToken, TemperatureSharpensAndFlattens) {
  EXPECT_NEAR(shares({.temperature = 0.5}).at(1), 0.16 / 0.30, 2e-3);
  EXPECT_NEAR(shares({.temperature = 1e6}).at(0), 0.25, 2e-3);
  EXPECT_NEAR(shares({.temperature = 1e-6}).at(1), 1, 1e-12);
  EXPECT_NEAR(shares({.temperature = 0}).at(1), 1, 1e-12);
}

TEST(PickToken, TopKAndTopPCutTheTail) {
  EXPECT_EQ(shares({.top_k = 1}).size(), 1u);
  const auto two = shares({.top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 0.4 / 0.7, 2e-3);
  EXPECT_EQ(shares({.top_k = 99}).size(), 4u);
  EXPECT_EQ(shares({.top_p = 0.0}).size(), 1u);
  EXPECT_EQ(shares({.top_p = 0.39}).size(), 1u);
  EXPECT_EQ(shares({.top_p = 0.41}).size(), 2u);
  EXPECT_EQ(shares({.top_p = 1.0}).size(), 4u);
}

TEST(PickToken, RefusesLogitsThatAreNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
    for (const double temperature : {0.0, 1.0})
      EXPECT_THROW(pick_token(std::vector<double>{1, bad, 2}, {.temperature = temperature}, 0.5),
                   std::runtime_error);
}

TEST(PickToken, EqualLogitsGoByIdWhenGreedy) {
  const std::vector<double> flat(5, 1.0);
  EXPECT_EQ(pick_token(flat, {.temperature = 0}, 0.99), 0);
}

bool go_on(std::int64_t) {
  return true;
}

Weights tiny() {
  return make_weights(
      GptShape{.layers = 1, .width = 16, .heads = 2, .context = 8, .vocabulary = 13}, 5,
      at::TensorOptions().dtype(at::kDouble));
}

TEST(Generate, IsTheSameForTheSameSeedAndRunsBeyondTheContext) {
  const Weights weights = tiny();
  const GenerateRequest request{.prompt = {1, 2, 3}, .tokens = 40, .seed = 7};
  std::vector<std::int64_t> streamed;
  const auto ids = generate(weights, request, [&](std::int64_t id) {
    streamed.push_back(id);
    return true;
  });
  EXPECT_EQ(ids.size(), 40u);
  EXPECT_EQ(streamed, ids);
  EXPECT_EQ(generate(weights, request, go_on), ids);
  GenerateRequest other = request;
  other.seed = 8;
  EXPECT_NE(generate(weights, other, go_on), ids);
}

TEST(Generate, DrawsEveryTokenAnew) {
  const Weights weights = tiny();
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : weights.parameters) parameter.value.zero_();
  // All tokens are equally likely wherever one stands.
  const auto ids = generate(weights, {.prompt = {1}, .tokens = 40, .seed = 7}, go_on);
  EXPECT_GT(std::set<std::int64_t>(ids.begin(), ids.end()).size(), 8u);
}

TEST(Generate, GreedyTakesTheBestLogitOfTheWholeText) {
  const Weights weights = tiny();
  const auto ids =
      generate(weights, {.prompt = {4, 5}, .tokens = 6, .rule = {.temperature = 0}}, go_on);
  std::vector<std::int64_t> text = {4, 5};
  for (const std::int64_t id : ids) {
    const at::Tensor input = at::empty({1, static_cast<std::int64_t>(text.size())}, at::kLong);
    std::copy(text.begin(), text.end(), input.data_ptr<std::int64_t>());
    EXPECT_EQ(forward_logits(weights, input)[static_cast<std::int64_t>(text.size()) - 1]
                  .argmax()
                  .item<std::int64_t>(),
              id);
    text.push_back(id);
  }
}

TEST(Generate, ALongPromptKeepsItsEndAndAStopTokenEnds) {
  const Weights weights = tiny();
  std::vector<std::int64_t> prompt(30);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int64_t>(i % 13);
  const std::vector<std::int64_t> tail(prompt.end() - 8, prompt.end());
  const auto make = [&](std::vector<std::int64_t> p, std::int64_t stop) {
    return generate(
        weights, {.prompt = std::move(p), .tokens = 10, .rule = {.temperature = 0}, .stop = stop},
        go_on);
  };
  const auto ids = make(prompt, -1);
  EXPECT_EQ(make(tail, -1), ids);
  EXPECT_TRUE(make(prompt, ids[0]).empty());
}

}  // namespace
}  // namespace laconic
