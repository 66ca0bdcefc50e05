#include "laconic/update/step_reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "laconic/model/test_gpt.hpp"
#include "laconic/update/flat_blocks.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

TEST(StepReduction, AddsLossesInRankOrderAndTakesTheWorstOfTheRest) {
  const ReducedStep all =
      combine({pack({.loss = 0.1, .square = 4, .skipped = 1, .in_a_row = 7}, {}),
               pack({.loss = 0.2, .in_a_row = 3, .signal = 15}, {}),
               pack({.loss = 0.3, .skipped = 2, .in_a_row = 5, .signal = 2}, {})});
  EXPECT_EQ(all.loss, 0.1 + 0.2 + 0.3);
  EXPECT_EQ(all.square, 4);
  EXPECT_EQ(all.skipped, 3);
  EXPECT_EQ(all.in_a_row, 3);
  EXPECT_EQ(all.signal, 15);
  EXPECT_EQ(all.norm, 0);
}

TEST(StepReduction, TheNormIsAddedInTheOrderOfNumbersWhoeverBringsThem) {
  const std::vector<double> squares = {1e16, 1, 1, 1, 3e-9, 0.1};  // the order shows in the bits
  std::vector<NumberedSquare> all;
  for (std::size_t i = 0; i < squares.size(); ++i) all.push_back({i, squares[i]});
  for (unsigned mask = 0; mask < 64; ++mask) {
    std::vector<NumberedSquare> here, there;
    for (std::size_t i = squares.size(); i-- > 0;)
      ((mask >> i & 1) != 0 ? here : there).push_back(all[i]);
    EXPECT_EQ(combine({pack({}, here), pack({}, there)}).norm, norm_of(squares)) << mask;
  }
  EXPECT_TRUE(std::isnan(combine({pack({}, {{3, NAN}}), pack({}, {{1, 2}})}).norm));
}

Weights with_gradients(const HeldBlocks& held) {
  Weights weights = make_weights(kTinyShape, 11, at::TensorOptions().dtype(at::kFloat), held);
  for (Parameter& p : weights.parameters) p.gradient = p.value.detach().clone();
  return weights;
}

TEST(StepReduction, PartsOfAModelTogetherHaveTheSquaresOfTheWhole) {
  const Weights whole = with_gradients({});
  const std::vector<NumberedSquare> expected = squares_of(whole);
  for (int cut = 1; cut < 4; ++cut) {
    HeldBlocks first(4), second(4);
    for (int b = 0; b < 4; ++b) (b < cut ? first : second)[static_cast<std::size_t>(b)] = true;
    const Weights a = with_gradients(first), b = with_gradients(second);
    ASSERT_TRUE(is_copy(b, b.parameters.front()));
    EXPECT_EQ(squares_of(a).size() + squares_of(b).size(), expected.size()) << cut;
    EXPECT_EQ(combine({pack({}, squares_of(b)), pack({}, squares_of(a))}).norm,
              global_norm(whole.parameters))
        << cut;
  }
}

TEST(FlatBlocks, WhatIsLeftOutOrNotHeldIsInNoBuffer) {
  Weights last = with_gradients({false, false, true, true});
  const ParameterNumbers shared = {0};
  const FlatBlocks all(last), rest(last, shared);
  ASSERT_EQ(all.size(), 4U);
  const std::int64_t layer = all.buffer(2).numel(), norms = 2 * kTinyShape.width;
  for (const std::size_t b : {0, 1}) {
    EXPECT_TRUE(all.is_empty(b));
    EXPECT_EQ(all.buffer(b).numel(), 0);
    EXPECT_TRUE(block_layouts(last)[b].tensors.empty());
  }
  EXPECT_EQ(all.buffer(3).numel(), kTinyShape.vocabulary * kTinyShape.width + norms);
  EXPECT_EQ(rest.buffer(3).numel(), norms);
  EXPECT_EQ(rest.buffer(2).numel(), layer);
  EXPECT_FALSE(rest.part(0).defined());
  EXPECT_EQ(elements_of(block_layouts(last, shared)[3]), static_cast<std::uint64_t>(norms));
  const at::Tensor before = last.parameters[0].gradient.clone();
  rest.give_gradients(last);  // zeros, but not for what is not there
  EXPECT_TRUE(last.parameters[0].gradient.equal(before));
  EXPECT_EQ(last.parameters[1].gradient.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace laconic
