#include "laconic/data/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

PairSizes truncate_longest_first(PairSizes sizes, std::size_t room) {
  if (sizes.first + sizes.second <= room) return sizes;
  const bool is_first_longer = sizes.first > sizes.second;
  std::size_t shorter = std::min(sizes.first, sizes.second);
  std::size_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return is_first_longer ? PairSizes{longer, shorter} : PairSizes{shorter, longer};
}

Frame frame_texts(const SpecialTokens& special, std::span<const std::int64_t> first,
                  std::span<const std::int64_t> second, bool has_second,
                  std::span<std::int64_t> ids, std::span<std::int64_t> types) {
  const std::size_t length = first.size() + 2 + (has_second ? second.size() + 1 : 0);
  LACONIC_ASSERT(length <= ids.size() && ids.size() == types.size(),
                 fmt::format("{} tokens in a row of {}", length, ids.size()));
  std::ranges::fill(types, 0);
  Frame frame{.first = {1, 1 + first.size()}, .second = {}, .length = length};
  std::size_t at = 0;
  ids[at++] = special.cls;
  std::ranges::copy(first, ids.begin() + 1);
  at = frame.first.end;
  ids[at++] = special.sep;
  if (has_second) {
    frame.second = {at, at + second.size()};
    std::ranges::copy(second, ids.begin() + static_cast<std::ptrdiff_t>(at));
    ids[frame.second.end] = special.sep;
    std::ranges::fill(types.subspan(at, second.size() + 1), 1);
  }
  // A row that is full may come from a tokeniser without padding.
  std::ranges::fill(ids.subspan(length), special.pad);
  return frame;
}

}  // namespace laconic
