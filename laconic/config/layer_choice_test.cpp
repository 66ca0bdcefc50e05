#include "laconic/config/layer_choice.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(LayerChoice, HalvesListsAndAll) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(chosen_layers("all", 3), (Layers{true, true, true}));
  EXPECT_EQ(chosen_layers("last half", 5), (Layers{false, false, true, true, true}));
  EXPECT_EQ(chosen_layers("first half", 5), (Layers{true, true, false, false, false}));
  EXPECT_EQ(chosen_layers("0, 2", 3), (Layers{true, false, true}));
}

TEST(LayerChoice, WhatChoosesNothingIsRefusedWithItsNumbers) {
  EXPECT_TRUE(check_layers("last half", 1).empty());
  EXPECT_TRUE(check_layers("7", 0).empty());
  EXPECT_EQ(check_layers("1,4,9", 4).size(), 2U);
  EXPECT_EQ(check_layers("1,4", 4)[0].what, "layer 4 of a model that has 4: they count from 0");
  EXPECT_EQ(check_layers("half", 4).size(), 1U);
  EXPECT_EQ(check_layers("-1", 4).size(), 1U);
  EXPECT_EQ(check_layers("", 4).size(), 1U);
}

}  // namespace
}  // namespace laconic
