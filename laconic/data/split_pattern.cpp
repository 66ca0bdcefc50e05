#include "laconic/data/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/unicode.hpp"

namespace laconic {

namespace {

constexpr std::size_t kLongestPattern = 1 << 14;

// \s, spelled out inside a class: PCRE2's \s also takes U+180E, which lost White_Space in
// Unicode 6.3.
constexpr std::string_view kBlanks = R"(\x09-\x0d\x{85}\p{Z})";

// GPT-2's pattern with three changes that alter no match.
//   - \s is spelled out, as above.
//   - Repeats are possessive: nothing follows them, so giving back could never help, and the
//     compiled code needs no stack that grows with the piece.
//   - \s+(?!\S)|\s+ would give back one character; PieceSplitter does that, for the same reason.
// Group 1 tells it that the match is a run of blanks.
constexpr std::string_view kFastGpt2 = R"('(?:[stmd]|re|ve|ll))"
                                       R"(| ?\p{L}++)"
                                       R"(| ?\p{N}++)"
                                       R"(| ?[^\x09-\x0d\x{85}\p{Z}\p{L}\p{N}]++)"
                                       R"(|([\x09-\x0d\x{85}\p{Z}]++))";

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Rewrites Oniguruma's language (as Ruby has it) as PCRE2's, construct by construct.
class Translation {
 public:
  explicit Translation(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '\\') {
        escape();
      } else if (is_in_class_) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    if (is_in_class_) refuse_part("a class without an end");
    return std::move(out_);
  }

 private:
  [[noreturn]] static void refuse_part(std::string_view what) {
    throw ConfigError(fmt::format("{} in the pattern is not supported", printable(what)));
  }

  void take(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }
  void replace(std::size_t bytes, std::string_view by) {
    out_ += by;
    rest_.remove_prefix(bytes);
  }

  void escape() {
    if (rest_.size() < 2) refuse_part("a \\ at the end");
    const char c = rest_[1];
    switch (c) {
      case 's':
        return replace(2, is_in_class_ ? std::string(kBlanks) : fmt::format("[{}]", kBlanks));
      case 'S':
        if (is_in_class_) refuse_part("\\S inside a class");
        return replace(2, fmt::format("[^{}]", kBlanks));
      case 'p':
      case 'P': return property();
      case 'u': return code_point();
      case 'x': {
        const bool is_braced = rest_.size() > 3 && rest_[2] == '{' && is_hex(rest_[3]);
        const bool is_plain = rest_.size() > 3 && is_hex(rest_[2]) && is_hex(rest_[3]);
        if (!is_braced && !is_plain) refuse_part(rest_.substr(0, 4));
        // Two digits are a byte to Oniguruma, a character to PCRE2: the same below 0x80 only.
        if (is_plain && rest_[2] > '7') refuse_part(rest_.substr(0, 4));
        return take(is_braced ? 3 : 4);
      }
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f': return take(2);
      default: break;
    }
    if (is_ascii_letter(c) || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80)
      refuse_part(rest_.substr(0, 2));
    take(2);
  }

  // \p{L} means the same to both; \p{Han} is a script to one, and wider to the other.
  void property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == std::string_view::npos)
      refuse_part(rest_.substr(0, 4));
    const std::string_view name = rest_.substr(3, end - 3);
    for (const char letter : name)
      if (!is_ascii_letter(letter) && letter != '_' && letter != '^')
        refuse_part(rest_.substr(0, end + 1));
    if (name.size() <= 2 || name == "Any" || (name[0] == '^' && name.size() <= 3))
      return take(end + 1);
    if (name[0] == '^') refuse_part(rest_.substr(0, end + 1));
    replace(end + 1, fmt::format("\\{}{{sc:{}}}", rest_[1], name));
  }

  void code_point() {
    if (rest_.size() < 6) refuse_part(rest_);
    for (const char digit : rest_.substr(2, 4))
      if (!is_hex(digit)) refuse_part(rest_.substr(0, 6));
    replace(6, fmt::format("\\x{{{}}}", rest_.substr(2, 4)));
  }

  void inside_class(char c) {
    if (c == '[') refuse_part("a class inside a class");
    if (rest_.starts_with("&&")) refuse_part("&&");
    if (c == ']') is_in_class_ = false;
    take(1);
  }

  void outside_class(char c) {
    if (c == '[') {
      take(1);
      if (rest_.starts_with('^')) take(1);
      if (rest_.starts_with(']')) refuse_part("an empty class");
      is_in_class_ = true;
      return;
    }
    if (rest_.starts_with("}+")) refuse_part("}+");
    if (rest_.starts_with("{,")) refuse_part("{,");
    if (!rest_.starts_with("(?")) {
      if (rest_.starts_with("(*")) refuse_part("(*");
      return take(1);
    }
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"})
      if (rest_.starts_with(head)) return take(head.size());
    refuse_part(rest_.substr(0, 4));
  }

  std::string_view rest_;
  std::string out_;
  bool is_in_class_ = false;
};

std::string pcre2_message(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

std::string translated(std::string_view pattern) {
  if (pattern == kGpt2Split) return std::string(kFastGpt2);
  if (pattern.size() > kLongestPattern)
    throw ConfigError(fmt::format("a pattern of {} bytes is not supported, only up to {}",
                                  pattern.size(), kLongestPattern));
  if (find_invalid_utf8(pattern)) throw ConfigError("the pattern is not UTF-8");
  return Translation(pattern).run();
}

std::shared_ptr<const void> compile(const std::string& pattern) {
  int error = 0;
  std::size_t offset = 0;
  pcre2_code* made = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_MATCH_INVALID_UTF,
      &error, &offset, nullptr);
  if (made == nullptr)
    throw ConfigError(fmt::format("the pattern does not compile: {} at byte {} of \"{}\"",
                                  pcre2_message(error), offset, printable(pattern)));
  // Without JIT (an unusual processor, or memory that may not be executable) PCRE2 interprets: the
  // same pieces, but far slower.
  pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
  return {made, [](pcre2_code* code) { pcre2_code_free(code); }};
}

SafeCut safe_cut_of(std::string_view pattern) {
  if (pattern == kGpt2Split) return SafeCut::before_newline;
  // Line breaks behind punctuation belong to it.
  if (pattern == kLlama3Split || pattern == kQwen2Split) return SafeCut::before_space;
  return SafeCut::nowhere;
}

}  // namespace

SplitPattern::SplitPattern(std::string_view text)
    : text_(text),
      code_(compile(translated(text))),
      safe_cut_(safe_cut_of(text)),
      gives_back_blank_(text == kGpt2Split) {}

const SplitPattern& SplitPattern::gpt2() {
  static const SplitPattern pattern(kGpt2Split);
  return pattern;
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool is_plain = is_ascii_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == ' ' ||
                          static_cast<unsigned char>(c) >= 0x80 ||
                          static_cast<unsigned char>(c) < 0x20;
    if (!is_plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::size_t next_cut(std::string_view text, std::size_t from, SafeCut where) {
  if (where == SafeCut::nowhere) return text.size();
  for (std::size_t at = from == 0 ? 1 : from; at < text.size(); ++at) {
    const bool is_after_visible = text[at - 1] > ' ' && text[at - 1] < 0x7f;
    if (!is_after_visible) continue;
    if (text[at] == ' ' || (text[at] == '\n' && where == SafeCut::before_newline)) return at;
  }
  return text.size();
}

}  // namespace laconic
