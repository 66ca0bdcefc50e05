// data/pair.hpp — a text, or two, between the special tokens that BERT puts around them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "laconic/data/token_set.hpp"

namespace laconic {

struct PairSizes {
  std::size_t first = 0;
  std::size_t second = 0;
  bool operator==(const PairSizes&) const = default;
};

// How many tokens of each stay so that both fit into `room`: the longer loses first, as Hugging
// Face's fast tokenisers do by default. Where both are cut, each keeps half, and an odd token goes
// to the longer, or to the second of two equals.
PairSizes truncate_longest_first(PairSizes sizes, std::size_t room);

// Where the two texts lie in a framed row: tokens [begin, end).
struct FramedText {
  std::size_t begin = 0;
  std::size_t end = 0;
};
struct Frame {
  FramedText first;
  FramedText second;       // empty without a second text
  std::size_t length = 0;  // tokens before the padding
};

// Writes [CLS] first [SEP], and where `has_second` also second [SEP] with type 1, then padding of
// type 0. Requires: rows are equally long, and everything fits.
Frame frame_texts(const SpecialTokens& special, std::span<const std::int64_t> first,
                  std::span<const std::int64_t> second, bool has_second,
                  std::span<std::int64_t> ids, std::span<std::int64_t> types);

}  // namespace laconic
