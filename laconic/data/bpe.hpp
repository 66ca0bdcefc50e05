// data/bpe.hpp — byte-level byte-pair encoding with a given vocabulary.
//
// A text is split into pieces (piece.hpp); the bytes of a piece are tokens;
// then, as long as some neighbours have a merge, the one of lowest rank, and of
// those the leftmost, is applied. This is GPT-2's rule and that of Hugging
// Face's tokenizers. What else a tokenizer.json may ask for is in BpeRules.
//
// Threads: encode() may run in any number of threads at once. Each call borrows
// scratch memory and a cache of pieces (4 MB) from a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "laconic/data/scratch_pool.hpp"
#include "laconic/data/split_pattern.hpp"

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
  std::int32_t end_of_text = 0;     // ends a document; the id of kEndOfText, if that is a token
  bool operator==(const BpeVocabulary&) const = default;
};

// A token that stands for its text wherever that occurs, before anything is split.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool is_normalised = false;  // looked for after normalisation, not before
  bool operator==(const AddedToken&) const = default;
};

// How a text becomes pieces, and pieces tokens. As it stands: GPT-2.
struct BpeRules {
  std::vector<SplitPattern> splits = {SplitPattern::gpt2()};  // each splits the pieces of the last
  bool nfc = false;            // compose characters first; decode() then gives back that text
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  std::vector<AddedToken> added;
  std::vector<std::int32_t> special;  // ids that text never becomes
  bool operator==(const BpeRules&) const = default;
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
  explicit Bpe(BpeVocabulary vocabulary, BpeRules rules = {});
  ~Bpe();

  // Appends. Text that spells "<|endoftext|>" is text: it never becomes the special token.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  // Requires: ids within the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;
  std::string text_behind(std::int32_t token) const { return vocabulary_.tokens[token]; }

  std::int32_t size() const { return static_cast<std::int32_t>(vocabulary_.tokens.size()); }
  SafeCut safe_cut() const { return safe_cut_; }
  const BpeVocabulary& vocabulary() const { return vocabulary_; }
  const BpeRules& rules() const { return rules_; }

 private:
  struct Scratch;
  // Finds added tokens: of those at the first place where there is one, the longest.
  struct Finder {
    std::vector<const AddedToken*> tokens;  // the longest first
    bool begins[256] = {};
    const AddedToken* find(std::string_view text, std::size_t& at) const;
  };

  template <class Rest>
  void take_added(const Finder& finder, std::string_view text, std::vector<std::int32_t>& out,
                  Rest rest) const;
  void encode_part(std::string_view part, std::size_t split, Scratch& scratch,
                   std::vector<std::int32_t>& out) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& out) const;
  std::unique_ptr<Scratch> make_scratch() const;

  BpeVocabulary vocabulary_;
  BpeRules rules_;
  BpeMergeTable table_;
  SafeCut safe_cut_ = SafeCut::before_newline;
  Finder raw_, normalised_;
  std::unordered_map<std::string_view, std::int32_t> whole_;  // tokens that a piece may be
  std::int32_t token_of_byte_[256] = {};
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace laconic
