#include "laconic/model/sampled_softmax.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/target.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/test_ops.hpp"

namespace laconic {
namespace {

using test_ops::expect_same;
using test_ops::random;

constexpr std::int64_t kRows = 5, kWidth = 7, kVocabulary = 30, kCount = 9;

// The definition, word by word.
at::Tensor by_definition(const std::vector<at::Tensor>& in,
                         const std::vector<std::int64_t>& targets, const Negatives& negatives) {
  const auto logit = [&](std::int64_t row, std::int64_t word) {
    return in[0][row].dot(in[1][word]) + in[2][word] - std::log(expected_count(negatives, word));
  };
  at::Tensor sum = in[0].new_zeros({});
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::int64_t target = targets[static_cast<std::size_t>(r)];
    if (target == kNoTarget) continue;
    const at::Tensor own = logit(r, target);
    at::Tensor all = own.exp();
    for (const std::int64_t word : negatives.ids)
      if (word != target) all = all + logit(r, word).exp();
    sum = sum + all.log() - own;
  }
  return sum / static_cast<double>(kRows);
}

// Of a table that is here.
at::Tensor sampled_loss(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                        const at::Tensor& targets, const Negatives& negatives) {
  return sampled_cross_entropy(
      x, [&](const at::Tensor& ids) { return table_rows(table, ids); }, bias, targets, negatives);
}

std::vector<at::Tensor> some_inputs() {
  return {random({kRows, kWidth}, "x"), random({kVocabulary, kWidth}, "table"),
          random({kVocabulary}, "bias")};
}

TEST(SampledSoftmax, IsItsDefinitionWithAllGradients) {
  const Negatives negatives = draw_negatives(kVocabulary, kCount, negatives_key(1, 2));
  // One that is drawn, twice; one that is not; none.
  std::int64_t other = 0;
  while (std::ranges::count(negatives.ids, other) > 0) ++other;
  const std::vector<std::int64_t> targets = {negatives.ids[0], other, kNoTarget, negatives.ids[0],
                                             negatives.ids[8]};
  expect_same(
      [&](const auto& in) {
        return sampled_loss(in[0], in[1], in[2], at::tensor(targets), negatives);
      },
      [&](const auto& in) { return by_definition(in, targets, negatives); }, some_inputs());
}

// Rows that are neither drawn nor targets are not looked at, and get nothing.
TEST(SampledSoftmax, ReadsDrawnRowsAndTargetsAlone) {
  std::vector<at::Tensor> in = some_inputs();
  const Negatives negatives = draw_negatives(kVocabulary, kCount, negatives_key(1, 2));
  const at::Tensor targets = at::arange(kRows);
  at::Tensor is_read = at::zeros({kVocabulary}, at::kBool);
  is_read.index_fill_(0, at::tensor(negatives.ids), true);
  is_read.index_fill_(0, targets, true);
  const double loss = sampled_loss(in[0], in[1], in[2], targets, negatives).item<double>();
  in[1] = in[1]
              .masked_fill(is_read.logical_not().unsqueeze(1), std::nan(""))
              .detach()
              .requires_grad_(true);
  const at::Tensor again = sampled_loss(in[0], in[1], in[2], targets, negatives);
  EXPECT_EQ(again.item<double>(), loss);
  again.backward();
  EXPECT_TRUE(in[1].grad().abs().sum(1).gt(0).equal(is_read));
}

// The whole softmax in tiles of any size, some rows at a time, is the whole softmax.
TEST(SampledSoftmax, TheWholeVocabularyMayComeInTiles) {
  const std::vector<at::Tensor> in = some_inputs();
  const at::Tensor targets = at::tensor({0L, kVocabulary - 1, kNoTarget, 11L, 12L});
  const double whole = cross_entropy(in[0], in[1], in[2], targets).item<double>();
  for (const std::int64_t tile : {1L, 4L, 12L, kVocabulary, kVocabulary + 1})
    for (const std::int64_t most : {1L, 2 * kVocabulary, 1000L}) {
      std::int64_t asked = 0;
      const at::Tensor loss =
          tiled_cross_entropy(in[0],
                              [&](const at::Tensor& ids) {
                                EXPECT_EQ(ids[0].item<std::int64_t>(), asked);
                                asked += ids.size(0);
                                return in[1].index_select(0, ids);
                              },
                              in[2], targets, {.tile = tile, .most_logits = most});
      EXPECT_NEAR(loss.item<double>(), whole, 1e-12) << tile << " " << most;
      EXPECT_EQ(asked, kVocabulary);
    }
}

// Where targets come as the whole softmax says, a model has nothing to learn: the gradient of the
// sampled loss vanishes too, in the mean over targets and draws. Without the counts it is several
// times as large.
TEST(SampledSoftmax, WhereTheWholeSoftmaxIsRightItsMeanGradientVanishes) {
  const std::vector<at::Tensor> in = some_inputs();
  const at::Tensor row = in[0].narrow(0, 0, 1);
  const at::Tensor likely = (row.mm(in[1].t()).view({-1}) + in[2]).softmax(0);
  const at::Tensor targets = at::arange(kVocabulary);
  for (const auto& [count, bound] : {std::pair{5, 0.06}, {15, 0.03}}) {
    at::Tensor sum = at::zeros({kWidth}, at::kDouble);
    double size = 0;
    constexpr int kSeeds = 300;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const Negatives negatives = draw_negatives(kVocabulary, count, negatives_key(9, seed));
      const at::Tensor x = row.repeat({kVocabulary, 1}).requires_grad_(true);
      sampled_loss(x, in[1], in[2], targets, negatives).backward();
      const at::Tensor by_target = x.grad() * likely.unsqueeze(1);
      sum.add_(by_target.sum(0));
      size += by_target.norm(2, 1).sum().item<double>();
    }
    EXPECT_LT(sum.norm().item<double>(), bound * size) << count;
  }
}

}  // namespace
}  // namespace laconic
