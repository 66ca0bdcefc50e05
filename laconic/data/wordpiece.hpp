// data/wordpiece.hpp — BERT's tokens, as Hugging Face's BertTokenizerFast makes them.
//
// A text is cleaned (control characters and bytes that are no UTF-8 vanish,
// every blank becomes a space), CJK characters get spaces around them, and for an
// uncased vocabulary accents and capitals go. Blanks separate words, and every
// punctuation mark is a word of its own. Of each word, the longest beginning that
// is a token is taken, then of the rest the longest that is one with "##" in
// front, and so on; a word where that fails, or of more than 100 characters, is
// [UNK]. So decode() gives back words, not the text.
//
// encode() never makes a special token other than [UNK]: "[CLS]" in a text is
// three words. (Hugging Face would find the token in the text.)
//
// Threads: encode() may run in any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "laconic/data/scratch_pool.hpp"

namespace laconic {

// What Hugging Face's BertNormalizer can be told.
struct WordPieceRules {
  bool clean = true;          // remove control characters, make all blanks spaces
  bool space_cjk = true;      // put spaces around CJK characters
  bool strip_accents = true;  // decompose, then remove Mn
  bool lower_case = true;
  bool operator==(const WordPieceRules&) const = default;
};

// Plain data.
struct WordPieceVocabulary {
  std::vector<std::string> tokens;    // by id
  std::vector<std::int32_t> special;  // ids that text never becomes
  std::int32_t unknown = 0;           // [UNK]
  std::string continuation = "##";    // in front of tokens that go on with a word
  std::size_t longest_word = 100;     // in characters
  bool clean_up = true;               // decode() joins punctuation to the word before it
  bool operator==(const WordPieceVocabulary&) const = default;
};

class WordPiece {
 public:
  WordPiece(WordPieceVocabulary vocabulary, WordPieceRules rules);
  ~WordPiece();

  void encode(std::string_view text, std::vector<std::int32_t>& out) const;  // appends
  // Words with one space between them, but as Hugging Face tidies them up ("it ' s" stays so).
  // Requires: ids within the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;
  // What decode() adds for a token that is not the first.
  std::string text_behind(std::int32_t token) const;

  std::int32_t size() const { return static_cast<std::int32_t>(vocabulary_.tokens.size()); }
  const WordPieceVocabulary& vocabulary() const { return vocabulary_; }
  const WordPieceRules& rules() const { return rules_; }

 private:
  struct Scratch;
  using Ids = std::unordered_map<std::string_view, std::int32_t>;

  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;
  bool match_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

  WordPieceVocabulary vocabulary_;
  WordPieceRules rules_;
  Ids first_;             // what may begin a word
  Ids later_;             // what may go on with it, without the continuation mark
  std::size_t most_ = 0;  // bytes of the longest of both
  mutable ScratchPool<Scratch> pool_;
};

// The words of a text, cleaned, before any of them is looked up.
std::vector<std::string> wordpiece_words(std::string_view text, const WordPieceRules& rules);

// vocab.txt: one token per line, the first has id 0. Throws FileError for a line that is no UTF-8
// and where [UNK] or [SEP] is missing; `path` is for messages.
WordPieceVocabulary parse_wordpiece(std::string_view text, const std::string& path);
std::string wordpiece_text(const WordPieceVocabulary& vocabulary);  // the inverse

}  // namespace laconic
