// data/sidecar.hpp — PREFIX.json: what Megatron's format does not say about a dataset.
//
// Laconic writes it, and does not need it: a dataset from elsewhere has none.
// With it, loss can be told in bits per byte, a wrong tokeniser is noticed, and
// the data can be verified.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/task_kind.hpp"
#include "laconic/data/token_set.hpp"

namespace laconic {

inline constexpr std::int32_t kMostVocabulary = 1 << 24;

// What a document is where it is no plain text: a record of a task, its sequences being the parts.
struct RecordInfo {
  TaskKind task = TaskKind::classify;         // not causal
  std::int64_t parts = 1;                     // sequences of a record; 0: any number, sentences
  std::int64_t labels_per_record = 0;         // numbers in PREFIX.labels, f64
  std::vector<std::string> label_names = {};  // classify: by class
  std::string labels_xxh3 = {};               // checksum of PREFIX.labels, where there are labels
  bool operator==(const RecordInfo&) const = default;
};

std::int64_t labels_per_record(TaskKind task);

struct Sidecar {
  std::string tokeniser;        // TokeniserKind as text
  std::int64_t vocabulary = 0;  // ids are below this; 1 ... kMostVocabulary in a file
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;  // of source text
  std::string bin_xxh3;     // checksum of PREFIX.bin
  // Documents whose first sequence is a prompt and whose last is its completion; 0: sequences mean
  // nothing.
  std::uint64_t prompts = 0;
  SpecialTokens special = {};
  std::optional<RecordInfo> records = {};  // none: documents are text
  bool operator==(const Sidecar&) const = default;
};

std::string to_text(const Sidecar& sidecar);
// Throws FileError with the field that is missing or wrong; `name` is for the message.
Sidecar parse_sidecar(std::string_view text, const std::string& name);

// Empty when PREFIX.json does not exist.
std::optional<Sidecar> read_sidecar(const std::string& prefix);

// Reads all of PREFIX: the index, and against the sidecar the number of tokens and the checksums.
// Throws FileError at the first thing that does not agree, or when there is no sidecar.
void verify_dataset(const std::string& prefix);

}  // namespace laconic
