// data/tokeniser.hpp — text to token ids and back.
//
// Four kinds. Bytes: id = byte, 256 = end of document; needs no files. Byte-level
// BPE (bpe.hpp): GPT-2's, one made by train_bpe, or a tokenizer.json of Hugging
// Face. WordPiece: BERT's (wordpiece.hpp). SentencePiece (sentencepiece.hpp). For
// bytes and BPE without normalisation decode(encode(x)) == x for every string of
// bytes, valid UTF-8 or not; the others give back what they made of the text.
//
// encode() knows no special tokens: text that spells "<|endoftext|>" or "[CLS]" is
// encoded as the characters it is, so no input can forge the end of a document.
// Whoever wants a special token appends end_of_document() or one of special().
//
// Threads: a const Tokeniser may be used from any number of threads at once.
// Copies are cheap and share their tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "laconic/data/bpe.hpp"
#include "laconic/data/special_tokens.hpp"

namespace laconic {

class WordPiece;
class SentencePiece;

enum class TokeniserKind { bytes, bpe, wordpiece, sentencepiece };
std::string_view to_text(TokeniserKind kind);  // "bytes", "bpe", "wordpiece", "sentencepiece"

// id = byte; 256 ends a document and has no text.
class ByteTokens {
 public:
  static constexpr std::int32_t kEnd = 256;
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  std::string decode(std::span<const std::int32_t> tokens) const;
  std::string text_behind(std::int32_t token) const { return decode({&token, 1}); }
  std::int32_t size() const { return kEnd + 1; }
};

// One alternative for each TokeniserKind, in that order.
using TokeniserForm =
    std::variant<std::shared_ptr<const ByteTokens>, std::shared_ptr<const Bpe>,
                 std::shared_ptr<const WordPiece>, std::shared_ptr<const SentencePiece>>;

struct TokeniserFile {
  std::string name;
  std::string bytes;
};

class Tokeniser {
 public:
  Tokeniser();                                   // bytes
  explicit Tokeniser(BpeVocabulary vocabulary);  // splits as GPT-2 does
  // `files` are what save() writes. Requires: special has eos or sep.
  Tokeniser(TokeniserForm form, const SpecialTokens& special, std::vector<TokeniserFile> files);

  std::vector<std::int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;  // appends

  // Special tokens decode as their names (the end of bytes: as nothing). Throws ConfigError when an
  // id is not in [0, vocabulary_size()).
  std::string decode(std::span<const std::int32_t> tokens) const;
  // What a token adds to the text of those before it, for text that appears token by token. Throws
  // like decode().
  std::string text_behind(std::int32_t token) const;

  // The first place at or after `from` where the text may be cut so that the tokens of the two
  // halves are the tokens of the whole; text.size() when there is none, or none is known.
  std::size_t next_cut(std::string_view text, std::size_t from) const;

  TokeniserKind kind() const;
  bool is_lossless() const;  // decode(encode(x)) == x for every x
  std::int32_t vocabulary_size() const;
  const SpecialTokens& special() const;
  std::int32_t end_of_document() const;  // eos; sep for BERT

  // Writes laconic_tokeniser.json and the files that Hugging Face reads: vocab.json and merges.txt,
  // or tokenizer.json, vocab.txt, tokenizer.model and their configuration. The folder is made if
  // needed.
  void save(const std::string& folder) const;

 private:
  struct State;
  void check_ids(std::span<const std::int32_t> tokens) const;
  std::shared_ptr<const State> state_;
};

// `path` is the word "bytes"; a folder that save() wrote; a folder of Hugging Face (tokenizer.json,
// vocab.txt, tokenizer.model or spiece.model, vocab.json and merges.txt); one of these files; or a
// prefix of vocabulary files (bpe_file.hpp). Throws FileError.
Tokeniser load_tokeniser(const std::string& path);

// Whether the folder holds the files of a tokeniser, or at least some of them.
bool has_tokeniser(const std::string& folder);

inline constexpr const char* kTokeniserMarker = "/laconic_tokeniser.json";
inline constexpr const char* kTokeniserEnding = ".tokeniser";
inline constexpr const char* kValidEnding = "-valid";

// Where the tokeniser of a dataset would be, to read it: PREFIX.tokeniser. A validation set
// X-valid that has no such folder shares X.tokeniser with the set it was split from.
std::string tokeniser_folder_of(const std::string& prefix);

}  // namespace laconic
