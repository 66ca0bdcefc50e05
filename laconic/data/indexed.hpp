// data/indexed.hpp — token sequences on disk, in Megatron-LM's format.
//
// PREFIX.bin is every token, one after the other. PREFIX.idx says where they
// begin; all little-endian:
//
//   "MMIDIDX\0\0"          9 bytes
//   version                u64, 1
//   token type             u8, see TokenType
//   sequences S            u64
//   document marks D       u64: one more than there are documents
//   lengths                S x i32, in tokens
//   pointers               S x i64, in bytes from the start of .bin
//   marks                  D x i64: document d is sequences [mark d, mark d+1)
//   modes                  S x i8, optional; not read
//
// Everything in the index is checked before use, once, when it is opened; after
// that reading cannot leave the file. Sequences must lie back to back, as every
// version of Megatron writes them, so that .bin is also one stream of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "laconic/base/bytes.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

// Megatron's codes. 6 and 7 are floating point, which tokens are not.
enum class TokenType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint16 = 8,
};
std::size_t size_of(TokenType type);
// What Megatron chooses: uint16 below 65500 tokens, else int32.
TokenType token_type_for(std::int64_t vocabulary);

// A checked index. Views into the bytes it was parsed from.
class Index {
 public:
  TokenType type() const { return type_; }
  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t documents() const { return documents_; }
  std::uint64_t tokens() const { return tokens_; }

  struct Range {  // of tokens in the stream
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool operator==(const Range&) const = default;
  };
  Range sequence(std::uint64_t s) const;      // Requires: s < sequences().
  Range document(std::uint64_t d) const;      // Requires: d < documents().
  Range sequences_of(std::uint64_t d) const;  // of sequences, not tokens. Requires: as above.

  // Says of tokens [first, first + out.size()) whether each is in the last sequence of its
  // document: the completion, where a document is a prompt and a completion.
  // Requires: first + out.size() <= tokens().
  void find_completions(std::uint64_t first, std::span<bool> out) const;

 private:
  friend Index parse_index(ByteView index, std::uint64_t bin_bytes, const std::string& name);
  void check_sequences(std::uint64_t bin_bytes, const std::string& name);
  void check_marks(const std::string& name) const;
  std::uint64_t first_token(std::uint64_t sequence) const;
  std::uint64_t sequence_at(std::uint64_t token) const;
  bool ends_document(std::uint64_t sequence) const;

  TokenType type_ = TokenType::uint16;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  std::uint64_t tokens_ = 0;
  ByteView lengths_, pointers_, marks_;
};

// Pure: `index` is the content of PREFIX.idx, `bin_bytes` the size of PREFIX.bin, and `name` is for
// messages. Throws FileError with the field at fault.
Index parse_index(ByteView index, std::uint64_t bin_bytes, const std::string& name);

// An open dataset. Any number of threads may read at once.
class IndexedDataset {
 public:
  // Throws SystemError when a file cannot be opened, FileError when its content is not acceptable.
  explicit IndexedDataset(const std::string& prefix);

  const Index& index() const { return index_; }
  std::uint64_t tokens() const { return index_.tokens(); }
  const std::string& prefix() const { return prefix_; }
  ByteView bin() const { return bin_.bytes(); }

  // Tokens [first, first + out.size()) of the stream.
  // Requires: first + out.size() <= tokens().
  void read(std::uint64_t first, std::span<std::int64_t> out) const;

  struct Extent {
    std::int64_t least = 0;
    std::int64_t greatest = 0;
  };
  Extent extent() const;  // one pass over all tokens; {0, 0} when there are none

 private:
  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  Index index_;
};

}  // namespace laconic
