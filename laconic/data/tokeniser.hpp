// data/tokeniser.hpp — text to token ids and back.
//
// Two kinds. Bytes: id = byte, 256 = end of document; needs no files. Byte-level
// BPE: GPT-2's, or one made by train_bpe. For both, decode(encode(x)) == x for
// every string of bytes, valid UTF-8 or not.
//
// encode() knows no special tokens: text that spells "<|endoftext|>" is encoded
// as the thirteen characters it is, so no input can forge the end of a
// document. Whoever wants the special token appends end_of_document().
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

namespace laconic {

enum class TokeniserKind { bytes, bpe };
std::string_view to_text(TokeniserKind kind);  // "bytes", "bpe"

class Tokeniser {
 public:
  Tokeniser() = default;  // bytes
  explicit Tokeniser(BpeVocabulary vocabulary);

  std::vector<std::int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;  // appends

  // The end of a document decodes as "<|endoftext|>" (bytes: as nothing).
  // Throws ConfigError when an id is not in [0, vocabulary_size()).
  std::string decode(std::span<const std::int32_t> tokens) const;

  TokeniserKind kind() const;
  std::int32_t vocabulary_size() const;
  std::int32_t end_of_document() const;

  // Writes laconic_tokeniser.json and, for BPE, vocab.json and merges.txt as Hugging Face reads
  // them. The folder is made if needed.
  void save(const std::string& folder) const;

 private:
  struct Bytes {};
  std::variant<Bytes, std::shared_ptr<const Bpe>> form_;
};

// `path` is the word "bytes", a folder that save() wrote, or a folder or prefix of vocabulary files
// (bpe_file.hpp). Throws FileError.
Tokeniser load_tokeniser(const std::string& path);

// Whether the folder holds the files of a tokeniser, or at least some of them.
bool has_tokeniser(const std::string& folder);

inline constexpr const char* kTokeniserEnding = ".tokeniser";
inline constexpr const char* kValidEnding = "-valid";

// Where the tokeniser of a dataset would be, to read it: PREFIX.tokeniser. A validation set
// X-valid that has no such folder shares X.tokeniser with the set it was split from.
std::string tokeniser_folder_of(const std::string& prefix);

}  // namespace laconic
