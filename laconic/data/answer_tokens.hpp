// data/answer_tokens.hpp — the tokens of a text that hold some of its bytes.
//
// Tokenisers do not say which bytes a token came from. So beginnings of the text are encoded, too:
// the tokens that the beginning before the answer shares with the whole text lie before the answer,
// which begins with the next; and if all tokens of the beginning up to the answer's end are those
// of the whole text, the answer ends with the last of them, else with the first that differs.
#pragma once

#include <cstdint>
#include <string_view>

#include "laconic/data/record_source.hpp"
#include "laconic/data/tokeniser.hpp"

namespace laconic {

struct TokenSpan {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Both -1 when the text has no token. Requires: the answer lies in the text and is not empty.
TokenSpan span_of(const Tokeniser& tokeniser, std::string_view text, Record::Answer answer);

}  // namespace laconic
