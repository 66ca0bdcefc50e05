// data/prepare.hpp — text files to a dataset: `laconic prepare`.
//
// Writes PREFIX.bin, .idx and .json (indexed.hpp, sidecar.hpp), PREFIX.labels for records that have
// some (record.hpp), the same as PREFIX-valid for what is held back (validation.hpp) or comes from
// files of its own, and PREFIX.tokeniser/.
// The result depends on the inputs and options alone, not on the number of
// threads. Everything is written and synced under temporary names (PREFIX*.tmp)
// and then renamed, so a failure, a full disk too, leaves nothing and an old
// dataset as it was. Only a killed process leaves PREFIX*.tmp; the next removes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/data/source.hpp"
#include "laconic/data/token_set.hpp"

namespace laconic {

struct PrepareProgress {
  std::string_view phase;  // "read", "train", "encode"
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;  // 0 while reading: not known yet
  std::uint64_t tokens = 0;
};

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders
  std::string output;               // PREFIX
  SourceOptions source;
  std::string tokeniser = "bytes";    // or a path for load_tokeniser
  std::int32_t train_vocabulary = 0;  // > 0: train BPE of this size on the training text instead
  bool append_end_of_document = true;
  double validation_share = 0;
  std::vector<std::string> validation_inputs = {};  // instead of a share: files for PREFIX-valid
  SpecialTokens special = {};  // ids beside those that the tokeniser knows itself
  int threads = 0;             // 0: as many as the machine has
  bool overwrite = false;      // replaces a whole old dataset, its PREFIX-valid too
  std::function<void(const PrepareProgress&)> progress = nullptr;  // called from this thread
};

struct PartReport {
  std::string prefix;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;    // of text
  std::uint64_t prompts = 0;  // documents that begin with one
};

struct PrepareReport {
  PartReport train;
  PartReport valid;  // all zero without validation
  std::string tokeniser_folder;
  std::int32_t vocabulary = 0;
  std::vector<std::string> label_names;  // of records with classes
  std::string note;                      // of training the tokeniser; usually empty
  double seconds = 0;

  std::uint64_t bytes() const { return train.bytes + valid.bytes; }
  std::uint64_t tokens() const { return train.tokens + valid.tokens; }
  double tokens_per_byte() const;
  double megabytes_per_second() const;
};

// Everything wrong with the options, as far as it shows without reading the inputs.
Problems check(const PrepareOptions& options);

// Throws ConfigError with all problems, FileError for a bad input, SystemError.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace laconic
