#include "laconic/data/mask.hpp"

#include <algorithm>

namespace laconic {

namespace {

// Words below this are the share of all.
std::uint64_t words_below(double share) {
  return static_cast<std::uint64_t>(share * 0x1p32);
}

bool is_special(const SpecialTokens& special, std::int64_t token) {
  return std::ranges::any_of(kSpecialTokens, [&](const auto& row) {
    return special.*row.second != kNoToken && special.*row.second == token;
  });
}

}  // namespace

void mask_text(const MaskRule& rule, Key key, FramedText text, std::span<std::int64_t> ids,
               std::span<std::int64_t> targets) {
  const std::uint64_t chosen = words_below(rule.share);
  const std::uint64_t masked = words_below(0.8), random = words_below(0.9);
  const auto continues_word = [&](std::int64_t token) {
    const auto place = static_cast<std::size_t>(token);
    return rule.continues != nullptr && place < rule.continues->size() && (*rule.continues)[place];
  };
  std::size_t head = text.begin;
  for (std::size_t i = text.begin; i < text.end; ++i) {
    if (!continues_word(ids[i])) head = i;
    if (is_special(rule.special, ids[i]) || word_at(key, 4 * head) >= chosen) continue;
    targets[i] = ids[i];
    const std::uint32_t how = word_at(key, 4 * i + 1);
    if (how < masked)
      ids[i] = rule.special.mask;
    else if (how < random)
      ids[i] = static_cast<std::int64_t>(std::uint64_t{word_at(key, 4 * i + 2)} *
                                             static_cast<std::uint64_t>(rule.vocabulary) >>
                                         32);
  }
}

}  // namespace laconic
