#include "laconic/layout/layout_picture.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace laconic {
namespace {

const Axes kSecond = {Axis::tp1}, kThirdAndFirst = {Axis::tp2, Axis::tp0};

TEST(LayoutPicture, CellsHaveTheRanksThatHoldThem) {
  const Mesh mesh{.tp = {2, 2, 2}};
  const std::vector<std::int64_t> sizes = {8, 6};
  const LayoutPicture picture =
      picture_of("w", {{kThirdAndFirst, kSecond}}, mesh, sizes, {.rows = 0, .columns = 1});
  EXPECT_EQ(to_text(picture),
            "       0-2  3-5\n"
            "  0-1    0    2\n"
            "  2-3    4    6\n"
            "  4-5    1    3\n"
            "  6-7    5    7\n");
}

TEST(LayoutPicture, AVectorIsOneRowAndUnevenBlocksAreAsTheyAre) {
  const Mesh mesh{.tp = {1, 4, 1}};
  const std::vector<std::int64_t> sizes = {5};
  EXPECT_EQ(to_text(picture_of("v", {{kSecond}}, mesh, sizes, {.rows = {}, .columns = 0})),
            "    0-1  2-3  4\n"
            "      0    1  2\n");
}

TEST(LayoutPicture, WhatSeveralHoldNamesAllOfThem) {
  const Mesh mesh{.tp = {1, 4, 1}};
  const std::vector<std::int64_t> sizes = {5};
  EXPECT_EQ(to_text(picture_of("v", {}, mesh, sizes, {.rows = {}, .columns = 0})),
            "    0-4\n"
            "    0-3\n");
  EXPECT_EQ(ranks_to_text({0, 2, 3, 4, 7}), "0 2-4 7");
}

TEST(LayoutPicture, LongOnesEnd) {
  const Mesh mesh{.tp = {1, 20, 1}};
  const std::vector<std::int64_t> sizes = {20, 20};
  const std::string wide =
      to_text(picture_of("w", {{{}, kSecond}}, mesh, sizes, {.rows = 0, .columns = 1}));
  EXPECT_NE(wide.find("14  ...\n"), std::string::npos) << wide;
  const std::string high =
      to_text(picture_of("w", {{kSecond, {}}}, mesh, sizes, {.rows = 0, .columns = 1}));
  EXPECT_EQ(std::count(high.begin(), high.end(), '\n'), 18) << high;
}

TEST(LayoutPicture, ADrawingHasACellForEachPart) {
  const Mesh mesh{.tp = {2, 2, 2}};
  const std::vector<std::int64_t> sizes = {8, 6};
  const std::string svg = pictures_svg("a < b", {picture_of("w", {{kThirdAndFirst, kSecond}}, mesh,
                                                            sizes, {.rows = 0, .columns = 1})});
  std::size_t cells = 0;
  for (std::size_t at = 0; (at = svg.find("stroke=\"#444444\"", at)) != std::string::npos; ++at)
    ++cells;
  EXPECT_EQ(cells, 8U);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace laconic
