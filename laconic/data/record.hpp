// data/record.hpp — datasets whose documents are records of a task, not text.
//
// A record is a document and its parts are the document's sequences: a text, or a
// text and its pair; a source and its target; a question and its context. Labels are
// in PREFIX.labels, little-endian f64, RecordInfo::labels_per_record for each record:
// the number of a class; a score; or the first and last token of an answer in the
// second part, -1 and -1 where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "laconic/data/indexed.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

// Any number of threads may read at once.
class RecordDataset {
 public:
  // Checks everything once: tokens against the vocabulary, parts of records, labels. Throws
  // ConfigError without a record, FileError, SystemError. Requires: info.parts > 0.
  RecordDataset(std::shared_ptr<const IndexedDataset> tokens, RecordInfo info, std::int64_t context,
                std::int64_t vocabulary, const TokenSet& set);

  std::uint64_t samples() const { return tokens_->index().documents(); }
  std::int64_t context() const { return context_; }
  const RecordInfo& info() const { return info_; }
  const IndexedDataset& tokens() const { return *tokens_; }
  const TokenSet& set() const { return set_; }

  // Requires, here and below: sample < samples(), part < info().parts.
  std::vector<std::int64_t> part(std::uint64_t sample, std::uint64_t part) const;
  std::uint64_t part_size(std::uint64_t sample, std::uint64_t part) const;
  // Requires: i < info().labels_per_record.
  double label(std::uint64_t sample, std::uint64_t i) const;

 private:
  Index::Range range_of(std::uint64_t sample, std::uint64_t part) const;
  void check_parts() const;
  void check_labels() const;

  std::shared_ptr<const IndexedDataset> tokens_;
  RecordInfo info_;
  std::int64_t context_;
  TokenSet set_;
  std::shared_ptr<const MappedFile> labels_;
};

// Documents as lists of sentences, of which pairs are made. A sample is a chunk: sentences of a
// document that follow each other, as many as fit beside three special tokens, at least two.
class SentenceDataset {
 public:
  // Throws ConfigError when there is no chunk, or only one document; FileError.
  SentenceDataset(std::shared_ptr<const IndexedDataset> tokens, std::int64_t context,
                  std::int64_t vocabulary, const TokenSet& set);

  struct Chunk {
    std::uint64_t document = 0;
    std::uint64_t first = 0;  // of the document's sentences
    std::uint64_t end = 0;
    bool operator==(const Chunk&) const = default;
  };
  std::uint64_t samples() const { return chunks_.size(); }
  const Chunk& chunk(std::uint64_t sample) const { return chunks_[sample]; }
  std::uint64_t documents() const { return tokens_->index().documents(); }
  std::uint64_t sentences(std::uint64_t document) const;
  std::vector<std::int64_t> sentence(std::uint64_t document, std::uint64_t number) const;
  std::int64_t context() const { return context_; }
  const IndexedDataset& tokens() const { return *tokens_; }
  const TokenSet& set() const { return set_; }

 private:
  void add_chunks(std::uint64_t document);

  std::shared_ptr<const IndexedDataset> tokens_;
  std::int64_t context_;
  TokenSet set_;
  std::vector<Chunk> chunks_;
};

}  // namespace laconic
