#include "laconic/layout/box.hpp"

#include <algorithm>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

std::int64_t ranges_of(const BoxCut& cut) {
  return (cut.sizes[cut.dim] + cut.each - 1) / cut.each;
}

}  // namespace

std::int64_t elements_of(const Box& box) {
  std::int64_t product = 1;
  for (const Range& range : box) product *= range.size();
  return product;
}

Box intersection(const Box& a, const Box& b) {
  LACONIC_ASSERT(a.size() == b.size(), "boxes of different tensors");
  Box both;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const std::int64_t begin = std::max(a[d].begin, b[d].begin);
    both.push_back({begin, std::max(begin, std::min(a[d].end, b[d].end))});
  }
  return both;
}

Box seen_from(const Box& box, const Box& origin) {
  LACONIC_ASSERT(box.size() == origin.size(), "boxes of different tensors");
  Box seen;
  for (std::size_t d = 0; d < box.size(); ++d)
    seen.push_back({box[d].begin - origin[d].begin, box[d].end - origin[d].begin});
  return seen;
}

BoxCut cut_in_boxes(const std::vector<std::int64_t>& sizes, std::int64_t most_elements) {
  if (std::ranges::find(sizes, 0) != sizes.end() || sizes.empty())
    return {
        .sizes = sizes, .dim = 0, .each = sizes.empty() ? 1 : std::max<std::int64_t>(1, sizes[0])};
  // `behind` elements have one index of dim d.
  std::size_t d = sizes.size() - 1;
  std::int64_t behind = 1;
  while (d > 0 && behind * sizes[d] <= most_elements) behind *= sizes[d--];
  return {.sizes = sizes,
          .dim = d,
          .each = std::clamp<std::int64_t>(most_elements / behind, 1, sizes[d])};
}

std::size_t box_count(const BoxCut& cut) {
  if (cut.sizes.empty() || std::ranges::find(cut.sizes, 0) != cut.sizes.end()) return 1;
  std::int64_t count = ranges_of(cut);
  for (std::size_t d = 0; d < cut.dim; ++d) count *= cut.sizes[d];
  return static_cast<std::size_t>(count);
}

Box box_at(const BoxCut& cut, std::size_t n) {
  LACONIC_ASSERT(n < box_count(cut), "there is no such box");
  Box box;
  for (const std::int64_t size : cut.sizes) box.push_back({0, size});
  if (box_count(cut) == 1) return box;
  auto left = static_cast<std::int64_t>(n);
  const std::int64_t begin = left % ranges_of(cut) * cut.each;
  box[cut.dim] = {begin, std::min(begin + cut.each, cut.sizes[cut.dim])};
  left /= ranges_of(cut);
  for (std::size_t d = cut.dim; d-- > 0; left /= cut.sizes[d]) {
    const std::int64_t index = left % cut.sizes[d];
    box[d] = {index, index + 1};
  }
  return box;
}

}  // namespace laconic
