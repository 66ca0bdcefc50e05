// layout/box.hpp — a tensor cut in boxes of bounded size, in the order of its elements: pure.
//
// A box is a range of each dim. Those of a cut are as long as the bound lets them be: the last
// dims are whole, one is cut in ranges of equally many, and of those before it each box has a
// single index. So the elements of a box lie beside each other in the tensor, and the boxes one
// behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "laconic/layout/layout.hpp"

namespace laconic {

using Box = std::vector<Range>;

std::int64_t elements_of(const Box& box);
// Where two boxes of one tensor meet: empty ranges where they do not. Requires: as many dims.
Box intersection(const Box& a, const Box& b);
// The box from another origin. Requires: as many dims.
Box seen_from(const Box& box, const Box& origin);

struct BoxCut {
  std::vector<std::int64_t> sizes;
  std::size_t dim = 0;    // the one that is cut in ranges
  std::int64_t each = 1;  // of so many
  bool operator==(const BoxCut&) const = default;
};
// Boxes of at most so many elements; of one, where the bound is less. A tensor without dims or
// elements is one box.
BoxCut cut_in_boxes(const std::vector<std::int64_t>& sizes, std::int64_t most_elements);
std::size_t box_count(const BoxCut& cut);
// Requires: n < box_count(cut).
Box box_at(const BoxCut& cut, std::size_t n);

}  // namespace laconic
