#include "laconic/data/prepare.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/data/bpe_train.hpp"
#include "laconic/data/encode_batch.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/validation.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr int kMostThreads = 1024;
constexpr int kTrain = 0, kValid = 1;  // targets of a batch

std::string valid_prefix(const std::string& prefix) {
  return prefix + kValidEnding;
}

std::vector<std::string> files_of(const std::string& prefix) {
  return {prefix + ".bin", prefix + ".idx", prefix + ".json"};
}

std::vector<std::string> all_outputs(const std::string& prefix) {
  std::vector<std::string> paths = files_of(prefix);
  for (std::string& path : files_of(valid_prefix(prefix))) paths.push_back(std::move(path));
  paths.push_back(prefix + kTokeniserEnding);
  return paths;
}

void check_output(const PrepareOptions& options, Problems& problems) {
  const fs::path name = fs::path(options.output).filename();
  if (name.empty() || name == "." || name == "..")
    problems.push_back(
        {"output", fmt::format("\"{}\" names no prefix, as data/wiki would", options.output)});
  if (options.overwrite) return;
  for (const std::string& path : all_outputs(options.output))
    if (fs::exists(path))
      problems.push_back({path, "exists already: choose another output or allow overwriting"});
}

void check_tokeniser(const PrepareOptions& options, Problems& problems) {
  const std::int32_t size = options.train_vocabulary;
  if (size != 0 && (size < 257 || size > kMostVocabulary))
    problems.push_back(
        {"train_vocabulary", fmt::format("{} is not within 257 ... {}", size, kMostVocabulary)});
  if (size != 0 && options.tokeniser != "bytes" && !options.tokeniser.empty())
    problems.push_back(
        {"tokeniser", fmt::format("either train one of {} tokens or take {}, not both", size,
                                  options.tokeniser)});
}

// Removes what has been put in place if a later part of the commit fails.
class Undo {
 public:
  ~Undo() {
    std::error_code ignored;  // a destructor has no one to tell
    for (const std::string& path : paths_) fs::remove_all(path, ignored);
  }
  void add(const std::vector<std::string>& paths) {
    paths_.insert(paths_.end(), paths.begin(), paths.end());
  }
  void release() { paths_.clear(); }

 private:
  std::vector<std::string> paths_;
};

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options) {
    Problems problems = check(options);
    if (!problems.empty()) throw ConfigError(std::move(problems));
    sources_ = find_sources(options.inputs, problems);
  }

  PrepareReport run() {
    measure();
    choose_tokeniser();
    encode();
    commit();
    report_.vocabulary = tokeniser_.vocabulary_size();
    report_.seconds = watch_.seconds();
    return std::move(report_);
  }

 private:
  void for_each(const std::function<void(const Document&)>& visit) const {
    for (const std::string& path : sources_) for_each_document(path, options_.source, visit);
  }

  void tell(std::string_view phase, std::uint64_t bytes_done, std::uint64_t tokens = 0) const {
    if (options_.progress) options_.progress({phase, bytes_done, total_bytes_, tokens});
  }

  // Counts documents, since the split depends on it, and meets every bad input line on the way.
  void measure() {
    std::uint64_t bytes = 0;
    for_each([&](const Document& document) {
      ++split_.documents;
      bytes += document.text.size();
    });
    split_.share = options_.validation_share;
    if (split_.documents == 0)
      throw ConfigError(fmt::format("the {} input files hold no text", sources_.size()));
    tell("read", bytes);
    total_bytes_ = bytes;
  }

  void choose_tokeniser() {
    if (options_.train_vocabulary == 0) {
      tokeniser_ = load_tokeniser(options_.tokeniser.empty() ? "bytes" : options_.tokeniser);
      return;
    }
    PieceCounts pieces;
    std::uint64_t number = 0, bytes = 0;
    for_each([&](const Document& document) {
      pieces.add(split_document(split_, number++, document.text).train);
      tell("train", bytes += document.text.size());
    });
    BpeTraining training = train_bpe(pieces, options_.train_vocabulary);
    report_.note = std::move(training.note);
    tokeniser_ = Tokeniser(std::move(training.vocabulary));
  }

  void encode() {
    if (const fs::path folder = fs::path(options_.output).parent_path(); !folder.empty())
      fs::create_directories(folder);
    const std::int32_t vocabulary = tokeniser_.vocabulary_size();
    train_.emplace(options_.output, vocabulary);
    if (split_.share > 0) valid_.emplace(valid_prefix(options_.output), vocabulary);
    EncodeBatch batch(tokeniser_, options_.threads);
    std::uint64_t number = 0;
    for_each([&](const Document& document) {
      const SplitText text = split_document(split_, number++, document.text);
      feed(batch, {text.train, document.owner}, kTrain);
      feed(batch, {text.valid, document.owner}, kValid);
    });
    write(batch);
  }

  void feed(EncodeBatch& batch, Document document, int target) {
    while (!document.text.empty()) {
      document.text = batch.add(document, target);
      if (batch.is_full()) write(batch);
    }
  }

  void write(EncodeBatch& batch) {
    for (const EncodedPart& part : batch.encode()) {
      IndexedWriter& writer = part.target == kTrain ? *train_ : *valid_;
      PartReport& report = part.target == kTrain ? report_.train : report_.valid;
      writer.add(part.tokens);
      report.bytes += part.text.size();
      if (!part.ends_document) continue;
      const std::int32_t end = tokeniser_.end_of_document();
      if (options_.append_end_of_document) writer.add({&end, 1});
      writer.end_document();
    }
    batch.clear();
    tell("encode", report_.bytes(), train_->tokens() + (valid_ ? valid_->tokens() : 0));
  }

  void commit() {
    for (const auto* writer : {&train_, &valid_})
      if (*writer && (*writer)->documents() == 0)
        throw ConfigError(
            fmt::format("validation_share = {} of {} bytes in {} documents leaves the {}"
                        " part empty",
                        split_.share, total_bytes_, split_.documents,
                        writer == &train_ ? "training" : "validation"));
    report_.tokeniser_folder = options_.output + kTokeniserEnding;
    // A reader of an old dataset must never meet the new tokeniser.
    for (const std::string& path : all_outputs(options_.output))
      if (options_.overwrite) fs::remove_all(path);
    Undo undo;
    undo.add({report_.tokeniser_folder});
    tokeniser_.save(report_.tokeniser_folder);
    if (valid_) commit_part(*valid_, valid_prefix(options_.output), report_.valid, undo);
    commit_part(*train_, options_.output, report_.train, undo);
    undo.release();
  }

  void commit_part(IndexedWriter& writer, const std::string& prefix, PartReport& report,
                   Undo& undo) {
    undo.add(files_of(prefix));
    const Sidecar sidecar = writer.commit(to_text(tokeniser_.kind()), report.bytes);
    report.prefix = prefix;
    report.documents = sidecar.documents;
    report.tokens = sidecar.tokens;
  }

  const PrepareOptions& options_;
  Stopwatch watch_;
  std::vector<std::string> sources_;
  ValidationSplit split_;
  std::uint64_t total_bytes_ = 0;
  Tokeniser tokeniser_;
  std::optional<IndexedWriter> train_;
  std::optional<IndexedWriter> valid_;
  PrepareReport report_;
};

}  // namespace

double PrepareReport::tokens_per_byte() const {
  return bytes() == 0 ? 0 : static_cast<double>(tokens()) / static_cast<double>(bytes());
}

double PrepareReport::megabytes_per_second() const {
  return seconds == 0 ? 0 : static_cast<double>(bytes()) / 1e6 / seconds;
}

Problems check(const PrepareOptions& options) {
  Problems problems;
  find_sources(options.inputs, problems);
  check_output(options, problems);
  check_tokeniser(options, problems);
  if (options.source.json_key.empty()) problems.push_back({"json_key", "is empty"});
  if (!(options.validation_share >= 0 && options.validation_share < 1))
    problems.push_back({"validation_share",
                        fmt::format("{} is not within 0 <= share < 1", options.validation_share)});
  if (options.threads < 0 || options.threads > kMostThreads)
    problems.push_back(
        {"threads", fmt::format("{} is not within 0 ... {}", options.threads, kMostThreads)});
  return problems;
}

PrepareReport prepare(const PrepareOptions& options) {
  return Preparation(options).run();
}

}  // namespace laconic
