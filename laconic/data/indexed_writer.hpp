// data/indexed_writer.hpp — writes a dataset (indexed.hpp) as a stream; it appears whole.
//
// Tokens go to PREFIX.bin.tmp as they come. sync() completes the three (with labels, four)
// temporary files, which is all that a full disk can refuse, and commit() only
// renames: it takes an old PREFIX.idx away, puts .bin, .labels and .json in place and
// .idx last, so whatever happens in between nobody can open a mixture. Without
// commit() nothing is left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/data/indexed.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/checksum.hpp"

namespace laconic {

class IndexedWriter {
 public:
  // Throws SystemError, here and below. The vocabulary chooses the type of the tokens.
  IndexedWriter(const std::string& prefix, std::int64_t vocabulary);

  // Appends to the current document. Requires: 0 <= token < vocabulary.
  void add(std::span<const std::int32_t> tokens);
  // A document is one sequence, or two: a prompt, and what completes it. Both throw ConfigError if
  // a sequence has more than 2^31 - 1 tokens.
  void end_prompt();
  void end_document();
  // Of records: every part is ended by the one, all parts of a record by the other; labels may come
  // at any time.
  void end_part() { end_sequence(); }
  void end_record();
  bool has_open_part() const { return open_tokens_ > 0; }
  bool has_open_record() const;
  void add_labels(std::span<const double> labels);

  std::uint64_t documents() const { return marks_.size() - 1; }
  std::uint64_t tokens() const { return tokens_; }

  // `source_bytes` is the size of the text behind the tokens. Requires: no open document, and as
  // many labels as `records` says. Once only.
  Sidecar sync(std::string_view tokeniser, std::uint64_t source_bytes,
               const SpecialTokens& special = {}, std::optional<RecordInfo> records = {});
  void commit();  // Requires: sync() before.

 private:
  Bytes index() const;
  void end_sequence();

  std::string prefix_;
  std::int64_t vocabulary_;
  TokenType type_;
  AtomicFile bin_;
  AtomicFile idx_;
  AtomicFile json_;
  Checksum checksum_;
  std::uint64_t tokens_ = 0;
  std::uint64_t open_tokens_ = 0;       // of the current document
  std::vector<std::int32_t> lengths_;   // of sequences
  std::vector<std::int64_t> marks_{0};  // sequences before each document, and in all
  std::uint64_t prompts_ = 0;
  std::vector<double> labels_;
  std::optional<AtomicFile> labels_file_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace laconic
