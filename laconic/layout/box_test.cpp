#include "laconic/layout/box.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

namespace laconic {
namespace {

using BoxSizes = std::vector<std::int64_t>;

std::int64_t element_count(const BoxSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Places in the tensor of the box's elements, in its order.
std::vector<std::int64_t> elements_in_order(const Box& box, const BoxSizes& sizes) {
  std::vector<std::int64_t> places = {0};
  for (std::size_t d = 0; d < box.size(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t place : places)
      for (std::int64_t at = box[d].begin; at < box[d].end; ++at)
        longer.push_back(place * sizes[d] + at);
    places = std::move(longer);
  }
  return places;
}

TEST(Box, BoxesOfACutFollowEachOtherThroughTheTensor) {
  for (const BoxSizes& sizes : {BoxSizes{7}, {6, 5}, {2, 3, 4}, {3, 1, 5}, {1, 1}, {5, 3, 2, 2}})
    for (std::int64_t most = 1; most <= element_count(sizes) + 1; ++most) {
      const BoxCut cut = cut_in_boxes(sizes, most);
      std::int64_t next = 0;
      for (std::size_t n = 0; n < box_count(cut); ++n) {
        const Box box = box_at(cut, n);
        EXPECT_LE(elements_of(box), most);
        const std::vector<std::int64_t> places = elements_in_order(box, sizes);
        ASSERT_EQ(static_cast<std::int64_t>(places.size()), elements_of(box));
        for (const std::int64_t place : places) ASSERT_EQ(place, next++) << n << " of " << most;
      }
      EXPECT_EQ(next, element_count(sizes));
      if (most >= element_count(sizes)) {
        EXPECT_EQ(box_count(cut), 1U);
      }
    }
}

TEST(Box, CutsTheFirstDimThatMust) {
  EXPECT_EQ(cut_in_boxes({100, 10}, 35), (BoxCut{{100, 10}, 0, 3}));
  EXPECT_EQ(box_at(cut_in_boxes({100, 10}, 35), 33), (Box{{99, 100}, {0, 10}}));
  EXPECT_EQ(cut_in_boxes({3, 100, 10}, 35), (BoxCut{{3, 100, 10}, 1, 3}));
  EXPECT_EQ(box_at(cut_in_boxes({3, 100, 10}, 35), 35), (Box{{1, 2}, {3, 6}, {0, 10}}));
  EXPECT_EQ(cut_in_boxes({4, 10}, 3), (BoxCut{{4, 10}, 1, 3}));
}

TEST(Box, OfNothingThereIsOne) {
  for (const BoxSizes& sizes : {BoxSizes{}, {0}, {0, 3}, {3, 0}}) {
    const BoxCut cut = cut_in_boxes(sizes, 2);
    EXPECT_EQ(box_count(cut), 1U);
    EXPECT_EQ(box_at(cut, 0).size(), sizes.size());
  }
}

TEST(Box, IntersectionsAreInBoth) {
  const Box a = {{2, 6}, {0, 3}}, b = {{4, 9}, {1, 8}};
  EXPECT_EQ(intersection(a, b), (Box{{4, 6}, {1, 3}}));
  EXPECT_EQ(seen_from(intersection(a, b), b), (Box{{0, 2}, {0, 2}}));
  EXPECT_EQ(elements_of(intersection(a, {{6, 9}, {0, 3}})), 0);
  EXPECT_EQ(elements_of(intersection({{6, 9}, {0, 3}}, a)), 0);
}

}  // namespace
}  // namespace laconic
