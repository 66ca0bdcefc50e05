#include "laconic/train/translate.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/model/model.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kBegin = 1, kEnd = 0;

Seq2SeqShape tiny_shape(NormPlace norm, PositionKind positions, TableSharing sharing) {
  return {.layers = 2,
          .decoder_layers = 2,
          .width = 12,
          .heads = 3,
          .hidden = 20,
          .context = 7,
          .target_context = 6,
          .vocabulary = 5,
          .norm = norm,
          .positions = positions,
          .sharing = sharing};
}

// Large numbers, so that the likeliest token changes from place to place.
Weights some_weights(const Family& shape) {
  Weights weights = make_weights(shape, 3, at::TensorOptions().dtype(at::kDouble));
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (p.value.dim() == 2) p.value.mul_(25);
  return weights;
}

// Logarithms of the probabilities of the token behind begin and `written`, without any cache.
at::Tensor next_of(const Weights& weights, const std::vector<std::int64_t>& source,
                   const std::vector<std::int64_t>& written) {
  std::vector<std::int64_t> ids = {kBegin};
  ids.insert(ids.end(), written.begin(), written.end());
  const Batch batch{
      {"source", at::tensor(source).unsqueeze(0)},
      {"source_length", at::tensor(static_cast<std::int64_t>(source.size())).view({1, 1})},
      {"ids", at::tensor(ids).unsqueeze(0)}};
  return forward_logits(weights, batch)[-1].log_softmax(-1);
}

TEST(Translate, GreedilyTakesTheLikeliestTokenOfTheWholeModel) {
  const std::vector<std::vector<std::int64_t>> sources = {{2, 3, 4}, {4}, {3, 3, 2, 4, 1, 2, 3}};
  for (const Family& shape :
       {Family(tiny_shape(NormPlace::pre, PositionKind::sinusoidal, TableSharing::all)),
        Family(tiny_shape(NormPlace::post, PositionKind::learned, TableSharing::none)),
        Family(tiny_shape(NormPlace::pre, PositionKind::learned, TableSharing::output)),
        Family(tiny_shape(NormPlace::pre, PositionKind::learned, TableSharing::input)),
        Family(GnmtShape{.layers = 3,
        .decoder_layers = 3,
        .width = 12,
        .context = 7,
        .target_context = 6,
        .vocabulary = 5})}) {
    const Weights weights = some_weights(shape);
    const auto found = translate(weights, sources, {.begin = kBegin, .end = kEnd});
    ASSERT_EQ(found.size(), sources.size());
    for (std::size_t s = 0; s < sources.size(); ++s) {
      std::vector<std::int64_t> ids;
      double log_probability = 0;
      bool is_ended = false;
      while (!is_ended && static_cast<std::int64_t>(ids.size()) < target_context_of(shape)) {
        const at::Tensor next = next_of(weights, sources[s], ids);
        const auto best = next.argmax().item<std::int64_t>();
        log_probability += next[best].item<double>();
        is_ended = best == kEnd;
        if (!is_ended) ids.push_back(best);
      }
      EXPECT_EQ(found[s].ids, ids) << s;
      EXPECT_EQ(found[s].is_ended, is_ended) << s;
      EXPECT_NEAR(found[s].log_probability, log_probability, 1e-10) << s;
    }
  }
}

// All texts of at most `left` more tokens: the best one that ends.
void search(const Weights& weights, const std::vector<std::int64_t>& source, Translation text,
            std::int64_t left, double penalty, double& best, std::vector<std::int64_t>& ids) {
  if (left == 0) return;
  const at::Tensor next = next_of(weights, source, text.ids);
  const double ended = text.log_probability + next[kEnd].item<double>();
  const double score = ended / std::pow(static_cast<double>(text.ids.size() + 1), penalty);
  if (score > best) {
    best = score;
    ids = text.ids;
  }
  for (std::int64_t id = 0; id < next.numel(); ++id) {
    if (id == kEnd) continue;
    Translation more = text;
    more.ids.push_back(id);
    more.log_probability += next[id].item<double>();
    search(weights, source, more, left - 1, penalty, best, ids);
  }
}

TEST(Translate, AWideBeamFindsTheBestOfAllTexts) {
  const Weights weights =
      some_weights(tiny_shape(NormPlace::pre, PositionKind::sinusoidal, TableSharing::all));
  for (const double penalty : {0.0, 1.0}) {
    for (const std::vector<std::int64_t>& source : {std::vector<std::int64_t>{2, 3, 4}, {4, 4}}) {
      double best = -1e300;
      std::vector<std::int64_t> ids;
      search(weights, source, {}, 4, penalty, best, ids);
      const auto found = translate(
          weights, {source},
          {.beam = 200, .length_penalty = penalty, .tokens = 4, .begin = kBegin, .end = kEnd});
      EXPECT_EQ(found[0].ids, ids) << penalty;
      EXPECT_TRUE(found[0].is_ended);
    }
  }
}

TEST(Translate, ATextDoesNotDependOnThoseBesideIt) {
  const Weights weights =
      some_weights(tiny_shape(NormPlace::post, PositionKind::sinusoidal, TableSharing::all));
  const std::vector<std::vector<std::int64_t>> sources = {{2, 3, 4, 2, 2}, {4}, {3, 1}};
  const TranslationRule rule{.beam = 3, .begin = kBegin, .end = kEnd};
  const auto together = translate(weights, sources, rule);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const auto alone = translate(weights, {sources[s]}, rule);
    EXPECT_EQ(alone[0].ids, together[s].ids) << s;
    EXPECT_NEAR(alone[0].log_probability, together[s].log_probability, 1e-10) << s;
  }
}

TEST(Translate, AModelWithoutADecoderIsRefused) {
  const Weights gpt = make_weights(
      GptShape{.layers = 1, .width = 4, .heads = 1, .context = 4, .vocabulary = 5}, 1, at::kFloat);
  EXPECT_THROW(translate(gpt, {{1}}, {}), ConfigError);
}

}  // namespace
}  // namespace laconic
