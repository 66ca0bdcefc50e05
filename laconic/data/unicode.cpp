#include "laconic/data/unicode.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

#include "laconic/data/unicode_8.inc"

bool is_within(std::span<const CodeRange> ranges, char32_t code) {
  const auto next = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
  return next != ranges.begin() && code <= std::prev(next)->last;
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// The end of the run of characters from `begin` on that may change by composition: up to an ASCII
// character that another follows, or an invalid byte.
std::size_t end_of_run(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (at < text.size()) {
    if (is_ascii(text[at]) && (at + 1 == text.size() || is_ascii(text[at + 1]))) break;
    const CodePoint point = code_point_at(text, at);
    if (!point.is_valid) break;
    at += point.bytes;
  }
  return at;
}

void append_nfc(std::string& out, std::string_view run) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()),
                   static_cast<utf8proc_ssize_t>(run.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  LACONIC_ASSERT(bytes >= 0, fmt::format("{} for {} bytes", utf8proc_errmsg(bytes), run.size()));
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  if (is_ascii(text[at])) return {static_cast<char32_t>(text[at]), 1, true};
  utf8proc_int32_t code = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                      static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (bytes < 1) return {};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(bytes), true};
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!point.is_valid) return at;
    at += point.bytes;
  }
  return {};
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_nonspacing_mark(char32_t code) {
  return is_within(kMarks8, code);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code > ' ' && code < '0') || (code > '9' && code < 'A') || (code > 'Z' && code < 'a') ||
           (code > 'z' && code < 0x7f);
  return is_within(kPunctuation8, code);
}

bool is_other(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0xe000 && code <= 0xf8ff) ||
         (code >= 0xf0000 && code <= 0xffffd) || (code >= 0x100000 && code <= 0x10fffd) ||
         is_within(kFormat8, code);
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_run(text, at);
    if (end > at) append_nfc(out, text.substr(at, end - at));
    at = end;
    // What cannot change: ASCII, but for the last before something else, and invalid bytes.
    while (at < text.size() && (is_ascii(text[at]) ? at + 1 == text.size() || is_ascii(text[at + 1])
                                                   : !code_point_at(text, at).is_valid))
      out += text[at++];
  }
  return out;
}

}  // namespace laconic
