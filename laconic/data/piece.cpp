#include "laconic/data/piece.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// GPT-2's pattern with three changes that alter no match.
//   - \s is spelled out: PCRE2's \s also takes U+180E, which lost White_Space in Unicode 6.3.
//   - Repeats are possessive: nothing follows them, so giving back could never help, and the
//     compiled code needs no stack that grows with the piece.
//   - \s+(?!\S)|\s+ would give back one character; next() does that, for the same reason.
// Group 1 tells it that the match is a run of blanks.
constexpr const char* kPattern = R"('(?:[stmd]|re|ve|ll))"
                                 R"(| ?\p{L}++)"
                                 R"(| ?\p{N}++)"
                                 R"(| ?[^\x09-\x0d\x{85}\p{Z}\p{L}\p{N}]++)"
                                 R"(|([\x09-\x0d\x{85}\p{Z}]++))";

std::string message_of(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Compiled once; PCRE2 allows any number of threads to match with it.
const pcre2_code* pattern() {
  static const pcre2_code* const code = [] {
    int error = 0;
    std::size_t offset = 0;
    pcre2_code* made =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
    LACONIC_ASSERT(made != nullptr, fmt::format("{} at {}", message_of(error), offset));
    // Without JIT (an unusual processor, or memory that may not be executable) PCRE2 interprets:
    // the same pieces, but far slower.
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    return made;
  }();
  return code;
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

struct PieceSplitter::Scratch {
  pcre2_match_data* match = pcre2_match_data_create(2, nullptr);
  ~Scratch() { pcre2_match_data_free(match); }
};

PieceSplitter::PieceSplitter() : scratch_(std::make_unique<Scratch>()) {}
PieceSplitter::~PieceSplitter() = default;
PieceSplitter::PieceSplitter(PieceSplitter&&) noexcept = default;
PieceSplitter& PieceSplitter::operator=(PieceSplitter&&) noexcept = default;

void PieceSplitter::start(std::string_view text) {
  text_ = text;
  at_ = match_begin_ = match_end_ = 0;
}

// Finds the first match at or after at_; false when only invalid bytes are left.
bool PieceSplitter::match() {
  const int found = pcre2_match(pattern(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                at_, 0, scratch_->match, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  LACONIC_ASSERT(found > 0, fmt::format("{} at byte {}", message_of(found), at_));
  const std::size_t* range = pcre2_get_ovector_pointer(scratch_->match);
  match_begin_ = range[0];
  match_end_ = range[1];
  const bool is_blank = found == 2;
  if (is_blank && match_end_ < text_.size()) {
    // Blanks before something else leave their last character to it, unless it is the only one.
    std::size_t last = match_end_ - 1;
    while (is_continuation(text_[last])) --last;
    if (last > match_begin_) match_end_ = last;
  }
  return true;
}

std::string_view PieceSplitter::next() {
  if (at_ == text_.size()) return {};
  if (match_end_ <= at_ && !match()) match_begin_ = match_end_ = text_.size();
  const std::size_t end = at_ < match_begin_ ? match_begin_ : match_end_;
  const std::string_view piece = text_.substr(at_, end - at_);
  at_ = end;
  return piece;
}

std::size_t next_cut(std::string_view text, std::size_t from) {
  // No piece holds a blank behind a visible character, and the pattern never looks back.
  for (std::size_t at = from == 0 ? 1 : from; at < text.size(); ++at) {
    const bool is_after_visible = text[at - 1] > ' ' && text[at - 1] < 0x7f;
    if (is_after_visible && (text[at] == ' ' || text[at] == '\n')) return at;
  }
  return text.size();
}

}  // namespace laconic
