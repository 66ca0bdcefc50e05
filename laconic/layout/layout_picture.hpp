// layout/layout_picture.hpp — who holds which part of a tensor, as a picture in text and SVG.
//
// A picture is a grid of cells with the ranks that hold them, found by asking shard_of()
// about every rank of the mesh. Cells have the sizes that the layout gives them, but are
// drawn equally large.
//
//             0-23  24-47
//     0-11     0      2
//    12-23     4      6
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "laconic/layout/layout.hpp"

namespace laconic {

struct LayoutPicture {
  std::string title;
  std::vector<Range> rows;  // ascending, none of them empty; without any the tensor is one row
  std::vector<Range> columns;
  std::vector<std::vector<Group>> cells;  // the ranks, by row and column
};

// Which dims are drawn. All others must be whole on every rank.
struct DrawnDims {
  std::optional<std::size_t> rows;
  std::size_t columns = 0;
};

LayoutPicture picture_of(std::string title, const Layout& layout, const Mesh& mesh,
                         std::span<const std::int64_t> sizes, const DrawnDims& drawn);

// Without the title. Of more than 16 rows or columns the rest is left out.
std::string to_text(const LayoutPicture& picture);
// A whole file, with all of them below each other.
std::string pictures_svg(const std::string& title, const std::vector<LayoutPicture>& pictures);

std::string to_text(const Range& range);        // "0-11": both ends are in it
std::string ranks_to_text(const Group& ranks);  // "0 2-5"

}  // namespace laconic
