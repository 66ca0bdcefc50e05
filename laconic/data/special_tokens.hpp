// data/special_tokens.hpp — tokens that mean something beside text.
#pragma once

#include <cstdint>

namespace laconic {

// Ids; -1: the vocabulary has no such token.
struct SpecialTokens {
  std::int32_t pad = -1;
  std::int32_t bos = -1;   // beginning of a sequence
  std::int32_t eos = -1;   // end of a sequence
  std::int32_t cls = -1;   // in front of what is classified
  std::int32_t sep = -1;   // behind each part of a pair
  std::int32_t mask = -1;  // in the place of what is to be guessed
  std::int32_t unk = -1;   // in the place of what the vocabulary cannot say
  bool operator==(const SpecialTokens&) const = default;
};

}  // namespace laconic
