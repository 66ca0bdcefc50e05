#include "laconic/config/place_choice.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(PlaceChoice, HalvesListsAndAll) {
  using Places = std::vector<bool>;
  EXPECT_EQ(chosen_places("all", 3), (Places{true, true, true}));
  EXPECT_EQ(chosen_places("last half", 5), (Places{false, false, true, true, true}));
  EXPECT_EQ(chosen_places("first half", 5), (Places{true, true, false, false, false}));
  EXPECT_EQ(chosen_places("0, 2", 3), (Places{true, false, true}));
}

TEST(PlaceChoice, WhatChoosesNothingIsRefusedWithItsNumbers) {
  EXPECT_TRUE(check_places("last half", 1).empty());
  EXPECT_TRUE(check_places("7", 0).empty());
  EXPECT_EQ(check_places("1,4,9", 4).size(), 2U);
  EXPECT_EQ(check_places("1,4", 4)[0].what, "layer 4 of a model that has 4: they count from 0");
  EXPECT_EQ(check_places("1,3", 3, kBoundaryWords)[0].what,
            "boundary 3 of a pipeline that has 3: they count from 0");
  EXPECT_EQ(check_places("half", 4).size(), 1U);
  EXPECT_EQ(check_places("-1", 4).size(), 1U);
  EXPECT_EQ(check_places("", 4).size(), 1U);
}

}  // namespace
}  // namespace laconic
