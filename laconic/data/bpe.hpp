// data/bpe.hpp — byte-level byte-pair encoding with a given vocabulary.
//
// A text is split into pieces (piece.hpp); the bytes of a piece are tokens;
// then, as long as some neighbours have a merge, the one of lowest rank, and of
// those the leftmost, is applied. This is GPT-2's rule and that of Hugging
// Face's tokenizers.
//
// Threads: encode() may run in any number of threads at once. Each call borrows
// scratch memory and a cache of pieces (4 MB) from a pool behind a mutex that
// is held only for the hand-over.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t product = 0;
  bool operator==(const BpeMerge&) const = default;
};

// Plain data. Every byte has a token, every id of a merge is in range and the bytes of a product
// are those of its parts: read_bpe and train_bpe see to that.
struct BpeVocabulary {
  std::vector<std::string> tokens;  // the bytes of each id
  std::vector<BpeMerge> merges;     // by rank
  std::int32_t end_of_text = 0;     // the id of kEndOfText
  bool operator==(const BpeVocabulary&) const = default;
};

// (left, right) -> rank and product: open addressing, since this look-up is the inner loop.
class BpeMergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Entry {
    std::uint64_t pair = 0;
    std::uint32_t rank = kNone;  // kNone: the slot is free
    std::int32_t product = 0;
  };

  explicit BpeMergeTable(const std::vector<BpeMerge>& merges);
  // An entry of rank kNone when the pair does not merge.
  const Entry& find(std::int32_t left, std::int32_t right) const;

 private:
  std::size_t slot_of(std::uint64_t pair) const;
  std::vector<Entry> entries_;
  int shift_ = 0;
};

// Both merge `tokens` in place by the rule above and give the same result. The first is quadratic
// and fast up to some dozens of tokens, the second is O(n log n).
void merge_short_piece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens);
void merge_long_piece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens);

class Bpe {
 public:
  explicit Bpe(BpeVocabulary vocabulary);
  ~Bpe();

  // Appends. Text that spells "<|endoftext|>" is text: it never becomes the special token.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Scratch;
  std::unique_ptr<Scratch> borrow() const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& out) const;

  BpeVocabulary vocabulary_;
  BpeMergeTable table_;
  std::int32_t token_of_byte_[256] = {};
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> pool_;
};

}  // namespace laconic
