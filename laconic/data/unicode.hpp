// data/unicode.hpp — what tokenisers ask about characters.
//
// Categories are those of Unicode 8, which Hugging Face's WordPiece knows; case
// and normalisation are those of utf8proc (Unicode 15 in Debian 12).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace laconic {

inline constexpr char32_t kReplacement = 0xfffd;

struct CodePoint {
  char32_t code = kReplacement;
  std::size_t bytes = 1;
  bool is_valid = false;  // else the byte begins no UTF-8 character
};

// Requires: at < text.size().
CodePoint code_point_at(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t code);
// The place of the first byte that is no UTF-8; nothing when all are.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

bool is_white_space(char32_t code);      // the property White_Space
bool is_nonspacing_mark(char32_t code);  // Mn
bool is_punctuation(char32_t code);      // P*, and all ASCII symbols, as BERT has it
bool is_other(char32_t code);            // Cc, Cf, Co: what BERT removes from text

// Canonical composition. Bytes that are no UTF-8 stay where they are, and nothing composes across.
std::string to_nfc(std::string_view text);

}  // namespace laconic
