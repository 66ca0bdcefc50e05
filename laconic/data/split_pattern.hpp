// data/split_pattern.hpp — a regular expression that splits text into pieces.
//
// Patterns are written as Hugging Face's `tokenizer.json` has them, for Oniguruma.
// PCRE2 reads nearly the same language; what the two would read differently is
// translated or refused. Letters are those of the Unicode version that PCRE2
// carries (14 in Debian 12): text with newer letters still round-trips, but may
// split differently elsewhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace laconic {

// GPT-2's pattern, which `ByteLevel` means where it splits, and those of Llama 3 and Qwen 2.
inline constexpr std::string_view kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kDigitSplit = R"(\p{N})";    // `Digits`, each alone
inline constexpr std::string_view kNumberSplit = R"(\p{N}+)";  // `Digits`

// Where a text may be cut so that the pieces of the halves are the pieces of the whole.
enum class SafeCut {
  nowhere,         // nobody has proved anything about the pattern
  before_space,    // between a visible ASCII character and a space
  before_newline,  // there, and between a visible ASCII character and a line feed
};

// A value: copies share the compiled code, and two are equal when their texts are.
class SplitPattern {
 public:
  // Throws ConfigError that says what in the pattern is not supported.
  explicit SplitPattern(std::string_view text);
  static const SplitPattern& gpt2();

  SafeCut safe_cut() const { return safe_cut_; }
  const std::string& text() const { return text_; }
  // A pcre2_code; PCRE2 allows any number of threads to match with it.
  const void* code() const { return code_.get(); }
  // The pattern has one group, a run of blanks that leaves its last character to what follows.
  bool gives_back_blank() const { return gives_back_blank_; }
  bool operator==(const SplitPattern& other) const { return text_ == other.text_; }

 private:
  std::string text_;
  std::shared_ptr<const void> code_;
  SafeCut safe_cut_ = SafeCut::nowhere;
  bool gives_back_blank_ = false;
};

// A pattern that matches exactly this text.
std::string literal_pattern(std::string_view text);

// The first place at or after `from` where the text may be cut; text.size() when there is none.
std::size_t next_cut(std::string_view text, std::size_t from, SafeCut where);

}  // namespace laconic
