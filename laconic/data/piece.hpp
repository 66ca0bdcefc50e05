// data/piece.hpp — GPT-2's split of text into pieces, the words that BPE never merges across.
//
// The pieces of a text, in order, are the text: nothing is lost or added, for
// any bytes. GPT-2's pattern is
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// with \s the Unicode property White_Space. GPT-2 knows only valid UTF-8; here
// a run of bytes that are no UTF-8 is a piece of its own. Letters are those of
// the Unicode version that PCRE2 carries (14 in Debian 12): text with newer
// letters still round-trips, but may split differently elsewhere.
//
// A PieceSplitter holds scratch memory: one per thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace laconic {

class PieceSplitter {
 public:
  PieceSplitter();
  ~PieceSplitter();
  PieceSplitter(PieceSplitter&&) noexcept;
  PieceSplitter& operator=(PieceSplitter&&) noexcept;

  // Requires: text outlives the calls of next().
  void start(std::string_view text);
  // The next piece, a view into the text; empty when there is none left.
  std::string_view next();

 private:
  struct Scratch;
  bool match();

  std::unique_ptr<Scratch> scratch_;
  std::string_view text_;
  std::size_t at_ = 0;           // everything before has been handed out
  std::size_t match_begin_ = 0;  // a match found behind invalid bytes waits here
  std::size_t match_end_ = 0;
};

// The first place at or after `from` where the text may be cut so that the pieces of the two halves
// are the pieces of the whole; text.size() when there is none.
std::size_t next_cut(std::string_view text, std::size_t from);

}  // namespace laconic
