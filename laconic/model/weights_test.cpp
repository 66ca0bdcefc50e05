#include "laconic/model/weights.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "laconic/model/test_gpt.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kHead = kTinyShape.layers + 1;

// As if backward of a block had left this in the grad() of all its leaves.
void pretend_backward(Weights& weights, std::int64_t block, double value) {
  for (Leaf& leaf : weights.leaves[static_cast<std::size_t>(block)])
    leaf.value.mutable_grad() = at::full(leaf.value.sizes(), value, leaf.value.scalar_type());
  collect_gradients(weights, block);
}

double first_of(const at::Tensor& tensor) {
  return tensor.flatten()[0].item<double>();
}

TEST(Weights, ABlockSeesWhatItsSpecLists) {
  const Weights weights = make_tiny_weights(at::kFloat);
  for (std::int64_t b = 0; b < block_count(weights.spec); ++b) {
    const std::vector<std::size_t>& uses = weights.spec.blocks[static_cast<std::size_t>(b)].uses;
    for (std::size_t i = 0; i < uses.size(); ++i)
      EXPECT_EQ(weights.leaf(b, i).data_ptr(), weights.value(uses[i]).data_ptr()) << b << " " << i;
  }
}

TEST(Weights, ASharedParameterHasALeafInEachBlockOnTheSameMemory) {
  const Weights weights = make_tiny_weights(at::kFloat);
  EXPECT_TRUE(weights.leaf(0, 0).is_same(weights.value(0)));
  EXPECT_FALSE(weights.leaf(kHead, 0).is_same(weights.value(0)));
  EXPECT_TRUE(weights.leaf(kHead, 0).requires_grad());
}

TEST(Weights, APartHoldsWhatItsBlocksUse) {
  const auto like = at::TensorOptions().dtype(at::kFloat);
  const Weights head = make_weights(kTinyShape, 11, like, {false, false, false, true});
  ASSERT_EQ(head.parameters.size(), 3U);
  EXPECT_EQ(head.parameters[0].name, "wte.weight");
  EXPECT_TRUE(head.leaf(kHead, 0).is_same(head.value(0)));
  EXPECT_TRUE(is_copy(head, head.parameters[0]));
  EXPECT_FALSE(is_copy(head, head.parameters[1]));
  EXPECT_EQ(completing_block(head, head.parameters[0]), kHead);
  const Weights all = make_tiny_weights(at::kFloat);
  EXPECT_EQ(completing_block(all, all.parameters[0]), 0);
  EXPECT_TRUE(head.value(0).equal(all.value(0)));
}

TEST(Gradients, AddUpOverMicrobatchesOutsideOfGrad) {
  Weights weights = make_tiny_weights(at::kFloat);
  for (const double value : {1.0, 2.0, 4.0}) pretend_backward(weights, 1, value);
  const std::size_t place = weights.leaves[1][0].place;
  EXPECT_FALSE(weights.parameters[place].value.grad().defined());
  EXPECT_FALSE(weights.parameters[place].gradient.defined());
  complete_gradient(weights, place);
  EXPECT_EQ(first_of(weights.parameters[place].gradient), 7);
}

TEST(Gradients, OfASharedParameterAreSummedOverItsBlocksFirstToLast) {
  Weights weights = make_tiny_weights(at::kFloat);
  // In floats (big + small) + small is not big + (small + small): the order shows.
  const double big = 1 << 24;
  pretend_backward(weights, kHead, 1);
  pretend_backward(weights, kHead, 1);
  pretend_backward(weights, 0, big);
  complete_gradient(weights, 0);
  EXPECT_EQ(first_of(weights.parameters[0].gradient), big + 2);
  clear_gradients(weights);
  EXPECT_FALSE(weights.parameters[0].gradient.defined());
  pretend_backward(weights, kHead, 3);
  complete_gradient(weights, 0);  // a block that added nothing counts as zero
  EXPECT_EQ(first_of(weights.parameters[0].gradient), 3);
}

// What lies in grad() already is added to, and comes back as the sum.
TEST(Gradients, SumsCanBeLentToTheNextBackward) {
  Weights weights = make_tiny_weights(at::kFloat);
  Leaf& leaf = weights.leaves[1][0];
  lend_sums(weights, 1);
  EXPECT_FALSE(leaf.value.grad().defined());  // there is none yet
  pretend_backward(weights, 1, 3);
  const void* place = leaf.sum.data_ptr();
  lend_sums(weights, 1);
  EXPECT_FALSE(leaf.sum.defined());
  EXPECT_EQ(leaf.value.grad().data_ptr(), place);
  leaf.value.mutable_grad().add_(4);
  collect_gradients(weights, 1);
  EXPECT_EQ(leaf.sum.data_ptr(), place);
  EXPECT_FALSE(leaf.value.grad().defined());
  complete_gradient(weights, leaf.place);
  EXPECT_EQ(first_of(weights.parameters[leaf.place].gradient), 7);
}

TEST(Weights, HaveNoRoomBehindThemOnTheCpu) {
  const Weights weights = make_tiny_weights(at::kFloat);  // 31 words
  for (const Parameter& p : weights.parameters) EXPECT_EQ(p.room, 0) << p.name;
  EXPECT_EQ(weights.room(kHead, weights.leaf(kHead, 0)), 0);
}

// A parameter that three blocks use, and one of each block.
ModelSpec three_users() {
  ModelSpec spec;
  spec.parameters = {{"shared", {2}}, {"a", {2}}, {"b", {2}}, {"c", {2}}};
  spec.blocks = {{.name = "first", .kind = "first", .uses = {0, 1}, .out = {{"x", {2}}}},
                 {.name = "second", .kind = "second", .uses = {0, 2}, .out = {{"x", {2}}}},
                 {.name = "third", .kind = "third", .uses = {0, 3}, .out = {}}};
  return spec;
}

TEST(Gradients, OfThreeUsersAreAddedInTheOrderOfBlocksWhateverComesFirst) {
  ASSERT_TRUE(check(three_users()).empty());
  Weights weights = make_empty_weights(kTinyShape, three_users(), at::TensorOptions());
  const double big = 1 << 24;
  // (1 + 1) + big is big + 2, and (big + 1) + 1 is big: the order shows.
  pretend_backward(weights, 2, big);
  pretend_backward(weights, 0, 1);
  pretend_backward(weights, 1, 1);
  complete_gradient(weights, 0);
  EXPECT_EQ(first_of(weights.parameters[0].gradient), big + 2);
  EXPECT_EQ(completing_block(weights, weights.parameters[0]), 0);
}

TEST(Gradients, HaveAPrecisionOfTheirOwn) {
  Weights weights = make_tiny_weights(at::kFloat);
  weights.precision.sum = at::kDouble;
  const double big = 1 << 24;
  for (const double value : {big, 1.0, 1.0, 1.0}) pretend_backward(weights, 1, value);
  const std::size_t place = weights.leaves[1][0].place;
  complete_gradient(weights, place);
  EXPECT_EQ(weights.parameters[place].gradient.scalar_type(), at::kDouble);
  EXPECT_EQ(first_of(weights.parameters[place].gradient), big + 3);  // a float would say big + 0
}

}  // namespace
}  // namespace laconic
