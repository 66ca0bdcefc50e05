#include "laconic/data/validation.hpp"

#include <algorithm>
#include <cmath>

#include "laconic/data/split_pattern.hpp"

namespace laconic {

namespace {

std::size_t tail_begin(std::string_view text, double share) {
  const auto wanted = static_cast<std::size_t>((1 - share) * static_cast<double>(text.size()));
  const std::size_t line_end = text.find('\n', wanted);
  // A line break too far off would cost more than half of the share: then cut between words.
  const std::size_t middle = wanted + (text.size() - wanted) / 2;
  return line_end <= middle ? line_end + 1 : next_cut(text, wanted, SafeCut::before_newline);
}

}  // namespace

SplitText split_document(const ValidationSplit& split, std::uint64_t document,
                         std::string_view text) {
  const auto held_back = [&](std::uint64_t count) {
    return std::floor(static_cast<double>(count) * split.share);
  };
  if (split.share == 0) return {text, {}};
  if (held_back(split.documents) >= 1) {
    const bool is_valid = held_back(document + 1) > held_back(document);
    return is_valid ? SplitText{{}, text} : SplitText{text, {}};
  }
  const std::size_t cut = std::min(tail_begin(text, split.share), text.size());
  return {text.substr(0, cut), text.substr(cut)};
}

}  // namespace laconic
