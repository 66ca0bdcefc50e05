#include "laconic/data/piece.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kMostSteps = 1'000'000;  // of PCRE2, in search of one match

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

struct PieceSplitter::Scratch {
  pcre2_match_data* match = pcre2_match_data_create(2, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  Scratch() { pcre2_set_match_limit(context, kMostSteps); }
  ~Scratch() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
  }
};

PieceSplitter::PieceSplitter() : PieceSplitter(SplitPattern::gpt2()) {}
PieceSplitter::PieceSplitter(SplitPattern pattern)
    : pattern_(std::move(pattern)), scratch_(std::make_unique<Scratch>()) {}
PieceSplitter::~PieceSplitter() = default;
PieceSplitter::PieceSplitter(PieceSplitter&&) noexcept = default;
PieceSplitter& PieceSplitter::operator=(PieceSplitter&&) noexcept = default;

void PieceSplitter::start(std::string_view text) {
  text_ = text;
  at_ = match_begin_ = match_end_ = 0;
}

int PieceSplitter::search(std::size_t from) {
  const auto* code = static_cast<const pcre2_code*>(pattern_.code());
  const auto* text = reinterpret_cast<PCRE2_SPTR>(text_.data());
  // GPT-2's pattern gives nothing back: it needs no limit, and PCRE2 is faster without.
  pcre2_match_context* context = pattern_.gives_back_blank() ? nullptr : scratch_->context;
  int found = pcre2_match(code, text, text_.size(), from, 0, scratch_->match, context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter takes its memory from the heap
    found = pcre2_match(code, text, text_.size(), from, PCRE2_NO_JIT, scratch_->match, context);
  if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
      found == PCRE2_ERROR_HEAPLIMIT)
    throw ConfigError(
        fmt::format("the tokeniser's pattern \"{}\" takes too long at byte {} of a text",
                    printable(pattern_.text()), from));
  LACONIC_ASSERT(found >= 0 || found == PCRE2_ERROR_NOMATCH, fmt::format("{} at {}", found, from));
  return found;
}

// Finds the first match at or after at_; false when there is none left. An empty one only ends the
// piece before it.
bool PieceSplitter::match() {
  int found = 0;
  for (std::size_t from = at_;;) {
    found = search(from);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    const std::size_t* range = pcre2_get_ovector_pointer(scratch_->match);
    match_begin_ = range[0];
    match_end_ = range[1];
    if (match_begin_ < match_end_ || match_begin_ > at_) break;
    if (match_end_ >= text_.size()) return false;
    from = match_end_ + 1;
    while (from < text_.size() && is_continuation(text_[from])) ++from;
  }
  const bool is_blank = found == 2 && pattern_.gives_back_blank();
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

}  // namespace laconic
