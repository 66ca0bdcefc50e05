#include "laconic/train/evaluate.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/data/indexed_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/train/batch.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kContext = 8, kWords = 13, kTextTokens = 46;

Weights tiny_gpt() {
  return make_weights(
      GptShape{.layers = 1, .width = 16, .heads = 2, .context = kContext, .vocabulary = kWords}, 5,
      at::TensorOptions().dtype(at::kDouble));
}

std::int32_t token_at(std::int64_t i) {
  return static_cast<std::int32_t>((i * i * 7 + i * 3) % kWords);
}

std::string write_tokens(const TemporaryFolder& folder) {
  const std::string prefix = folder / "data";
  IndexedWriter writer(prefix, kWords);
  for (std::int64_t i = 0; i < kTextTokens; ++i) {
    const std::int32_t token = token_at(i);
    writer.add({&token, 1});
  }
  writer.end_document();
  writer.sync("bytes", kTextTokens);
  writer.commit();
  return prefix;
}

Evaluation evaluate_strided(const Weights& weights, const std::string& prefix, std::int64_t stride,
                            std::int64_t batch = 3, std::int64_t samples = 0) {
  World alone;
  return evaluate(
      [&](const Batch& b, std::uint64_t, const Pass&) { return forward_loss(weights, b); },
      open_dataset(prefix, kContext, kWords, stride),
      {.task = Causal{}, .samples = samples, .batch = batch, .bytes_of_token = {}}, alone);
}

// The loss of the token at `target`, seen from a window that begins at `first`.
double loss_at(const Weights& weights, std::int64_t first, std::int64_t target) {
  const at::Tensor ids = at::empty({1, target - first}, at::kLong);
  for (std::int64_t i = first; i < target; ++i)
    ids.data_ptr<std::int64_t>()[i - first] = token_at(i);
  const at::Tensor logits = forward_logits(weights, ids)[target - first - 1];
  return logits.logsumexp(0).item<double>() - logits[token_at(target)].item<double>();
}

TEST(StridedEvaluation, ScoresEveryTokenOnceInTheFirstWindowThatHoldsIt) {
  const TemporaryFolder folder;
  const std::string prefix = write_tokens(folder);
  const Weights weights = tiny_gpt();
  for (const std::int64_t stride : {1, 3, 5, 8}) {
    double nats = 0;
    std::int64_t tokens = 0, windows = 0, scored_to = 0;
    for (std::int64_t first = 0; first + kContext < kTextTokens; first += stride, ++windows)
      for (std::int64_t t = std::max(scored_to, first) + 1; t <= first + kContext; ++t, ++tokens)
        nats += loss_at(weights, first, scored_to = t);
    const Evaluation e = evaluate_strided(weights, prefix, stride);
    EXPECT_EQ(e.samples, windows) << stride;
    EXPECT_EQ(e.tokens, tokens) << stride;
    EXPECT_NEAR(e.loss, nats / static_cast<double>(tokens), 1e-12) << stride;
  }
}

TEST(StridedEvaluation, IsThePlainOneWhenWindowsDoNotOverlap) {
  const TemporaryFolder folder;
  const std::string prefix = write_tokens(folder);
  const Weights weights = tiny_gpt();
  for (const std::int64_t samples : {0, 1, 4}) {
    const Evaluation plain = evaluate_strided(weights, prefix, 0, 2, samples);
    const Evaluation strided = evaluate_strided(weights, prefix, kContext, 2, samples);
    EXPECT_EQ(strided.loss, plain.loss);
    EXPECT_EQ(strided.tokens, plain.tokens);
    EXPECT_EQ(plain.tokens, plain.samples * kContext);
  }
  EXPECT_NE(evaluate_strided(weights, prefix, 2).loss, evaluate_strided(weights, prefix, 0).loss);
}

}  // namespace
}  // namespace laconic
