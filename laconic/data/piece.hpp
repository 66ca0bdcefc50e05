// data/piece.hpp — splits text into pieces, the words that BPE never merges across.
//
// The pieces of a text, in order, are the text: nothing is lost or added, for
// any bytes. What a pattern (split_pattern.hpp) matches is a piece, and so is
// what lies between two matches. Patterns know only valid UTF-8; here a run of
// bytes that are no UTF-8 is a piece of its own.
//
// A PieceSplitter holds scratch memory: one per thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "laconic/data/split_pattern.hpp"

namespace laconic {

class PieceSplitter {
 public:
  PieceSplitter();  // GPT-2's pattern
  explicit PieceSplitter(SplitPattern pattern);
  ~PieceSplitter();
  PieceSplitter(PieceSplitter&&) noexcept;
  PieceSplitter& operator=(PieceSplitter&&) noexcept;

  // Requires: text outlives the calls of next().
  void start(std::string_view text);
  // The next piece, a view into the text; empty when there is none left. Throws ConfigError when
  // the pattern takes too long on this text.
  std::string_view next();

 private:
  struct Scratch;
  bool match();
  int search(std::size_t from);

  SplitPattern pattern_;
  std::unique_ptr<Scratch> scratch_;
  std::string_view text_;
  std::size_t at_ = 0;           // everything before has been handed out
  std::size_t match_begin_ = 0;  // a match found behind what no pattern takes waits here
  std::size_t match_end_ = 0;
};

}  // namespace laconic
