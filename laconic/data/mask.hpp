// data/mask.hpp — which tokens a masked language model does not see: a pure function of a key.
//
// Position i of a row has four words of its own, 4i ... 4i + 3 of the key (base/philox.hpp):
//
//   word 4i      below share * 2^32: the position is chosen, and its token becomes its target
//   word 4i + 1  below 0.8 * 2^32: the token becomes the mask; else below 0.9 * 2^32: any id of the
//                vocabulary; else it stays
//   word 4i + 2  which id: word * vocabulary / 2^32
//
// (products are rounded down). Special tokens, the ends of documents among them, are never chosen.
// With whole words the tokens that continue a word are chosen when its first token is, whatever
// their own first word says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/data/pair.hpp"

namespace laconic {

struct MaskRule {
  double share = 0.15;         // (0, 1]
  SpecialTokens special = {};  // never chosen; has the mask
  std::int64_t vocabulary = 0;
  // By token: whether it continues the word of the token before; null: every token is by itself.
  const std::vector<bool>* continues = nullptr;
};

// Masks tokens of `text` in `ids` and writes their targets; other targets stay as they are.
void mask_text(const MaskRule& rule, Key key, FramedText text, std::span<std::int64_t> ids,
               std::span<std::int64_t> targets);

}  // namespace laconic
