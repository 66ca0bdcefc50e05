#include "laconic/data/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ranges>
#include <system_error>
#include <utility>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/answer_tokens.hpp"
#include "laconic/data/bpe_train.hpp"
#include "laconic/data/encode_batch.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/input.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/validation.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr int kMostThreads = 1024;
// Targets of a batch: a part, and whether it is a prompt.
constexpr int kTrain = 0, kValid = 1, kPrompt = 2;
// Also a part of a record, and the last one.
constexpr int kRecordPart = 4, kLastPart = 8;

std::string valid_prefix(const std::string& prefix) {
  return prefix + kValidEnding;
}

// Not tokeniser_folder_of(): what is written is never that of another dataset.
std::string tokeniser_folder(const std::string& prefix) {
  return prefix + kTokeniserEnding;
}

std::string temporary(const std::string& path) {
  return path + ".tmp";
}

std::string aside(const std::string& path) {
  return path + ".old.tmp";
}

// .idx first: without it nobody opens the others.
std::vector<std::string> files_of(const std::string& prefix) {
  return {prefix + ".idx", prefix + ".bin", prefix + ".labels", prefix + ".json"};
}

std::vector<std::string> all_outputs(const std::string& prefix) {
  std::vector<std::string> paths = files_of(prefix);
  for (std::string& path : files_of(valid_prefix(prefix))) paths.push_back(std::move(path));
  paths.push_back(tokeniser_folder(prefix));
  return paths;
}

void check_output(const PrepareOptions& options, Problems& problems) {
  const fs::path name = fs::path(options.output).filename();
  if (name.empty() || name == "." || name == "..")
    problems.push_back(
        {"--out", fmt::format("\"{}\" names no prefix, as data/wiki would", options.output)});
  if (options.overwrite) return;
  for (const std::string& path : all_outputs(options.output))
    if (fs::exists(path))
      problems.push_back({path, "exists already: choose another --out, or add --overwrite"});
}

void check_tokeniser(const PrepareOptions& options, Problems& problems) {
  const std::int32_t size = options.train_vocabulary;
  if (size != 0 && (size < 257 || size > kMostVocabulary))
    problems.push_back(
        {"--train-bpe", fmt::format("{} is not within 257 ... {}", size, kMostVocabulary)});
  if (size != 0 && options.tokeniser != "bytes" && !options.tokeniser.empty())
    problems.push_back(
        {"--tokeniser", fmt::format("either train one of {} tokens or take {}, not both", size,
                                    options.tokeniser)});
}

void check_validation_inputs(const PrepareOptions& options, Problems& problems) {
  const std::vector<std::string>& inputs = options.validation_inputs;
  find_sources(inputs, problems);
  if (std::ranges::count(options.inputs, kStandardInput) > 0 &&
      std::ranges::count(inputs, kStandardInput) > 0)
    problems.push_back({"--validation", "standard input is named twice, and can be read once"});
  if (options.validation_share > 0)
    problems.push_back({"--validation", "either files or a share (--valid), not both"});
  if (options.source.is_side_by_side && inputs.size() % 2 != 0)
    problems.push_back({"--validation", fmt::format("{} files: source and target alternate, so "
                                                    "there must be two of each pair",
                                                    inputs.size())});
}

void rename_path(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw SystemError(to, "rename to", error.value());
}

// Puts new outputs in the place of old ones by renaming alone. Unless it comes to finish(), the new
// ones are taken away and the old ones put back.
class Exchange {
 public:
  explicit Exchange(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  ~Exchange() {
    std::error_code ignored;  // a destructor has no one to tell
    for (const std::string& path : new_) fs::remove_all(path, ignored);
    for (const std::string& path : old_ | std::views::reverse)
      fs::rename(aside(path), path, ignored);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void begin(bool overwrite) {
    for (const std::string& path : paths_) {
      if (overwrite && fs::exists(path)) put_aside(path);
      if (!fs::exists(path)) new_.push_back(path);  // else it is somebody else's
    }
  }

  void finish() {
    new_.clear();
    old_.clear();
    std::error_code ignored;  // all is in place; what stays here, the next prepare removes
    for (const std::string& path : paths_) fs::remove_all(aside(path), ignored);
  }

 private:
  void put_aside(const std::string& path) {
    fs::remove_all(aside(path));
    rename_path(path, aside(path));
    old_.push_back(path);
  }

  std::vector<std::string> paths_;
  std::vector<std::string> old_;  // put aside
  std::vector<std::string> new_;  // put in place, or about to be
};

constexpr std::size_t kMostLabels = 10000;

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options) {
    Problems problems = check(options);
    refuse(problems);
    const std::string folder = fs::path(options.output).parent_path();
    inputs_.emplace(find_sources(options.inputs, problems), options.source, folder);
    if (!options.validation_inputs.empty())
      valid_inputs_.emplace(find_sources(options.validation_inputs, problems), options.source,
                            folder);
    if (options.source.records) labels_ = options.source.records->labels;
  }
  ~Preparation() {
    std::error_code ignored;  // a destructor has no one to tell
    fs::remove_all(temporary(tokeniser_folder(options_.output)), ignored);
  }
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  PrepareReport run() {
    if (options_.train_vocabulary == 0)
      tokeniser_ = load_tokeniser(options_.tokeniser.empty() ? "bytes" : options_.tokeniser);
    check_special();  // what is trained has an end of document, as bytes have
    measure();
    train_tokeniser();
    encode();
    commit();
    report_.vocabulary = tokeniser_.vocabulary_size();
    report_.label_names = labels_;
    report_.seconds = watch_.seconds();
    return std::move(report_);
  }

 private:
  // What is in the inputs, or in those for validation alone.
  using VisitInput = std::function<void(const Document&, bool is_for_validation)>;
  void for_each(const VisitInput& visit) const {
    inputs_->for_each([&](const Document& document) { visit(document, false); });
    if (valid_inputs_)
      valid_inputs_->for_each([&](const Document& document) { visit(document, true); });
  }

  bool has_records() const { return options_.source.records.has_value(); }
  TaskKind task() const { return has_records() ? options_.source.records->task : TaskKind::causal; }
  bool has_validation() const { return split_.share > 0 || valid_inputs_; }

  // Those that the tokeniser knows, and those given.
  SpecialTokens special() const {
    SpecialTokens special = tokeniser_.special();
    for (const auto& [name, member] : kSpecialTokens)
      if (options_.special.*member != kNoToken) special.*member = options_.special.*member;
    return special;
  }

  void check_special() const {
    const std::string missing = missing_special(task(), task() == TaskKind::masked, special());
    if (missing.empty()) return;
    throw ConfigError(Problems{
        {"--tokeniser",
         fmt::format("--task {} needs the special tokens {}, and \"{}\" has none such: take that "
                     "of a BERT",
                     name_in(kTaskKindNames, task()), missing,
                     options_.train_vocabulary > 0 ? "--train-bpe" : options_.tokeniser)}});
  }

  void tell(std::string_view phase, std::uint64_t bytes_done, std::uint64_t tokens = 0) const {
    if (options_.progress) options_.progress({phase, bytes_done, total_bytes_, tokens});
  }

  // Counts documents, since the split depends on it, and meets every bad input line on the way.
  void measure() {
    std::uint64_t bytes = 0;
    for_each([&](const Document& document, bool is_for_validation) {
      if (!is_for_validation) ++split_.documents;
      bytes += bytes_of(document);
      if (task() == TaskKind::classify) note_label(*document.record, is_for_validation);
    });
    sort_labels();
    split_.share = options_.validation_share;
    if (split_.documents == 0)
      throw ConfigError(
          fmt::format("INPUT: {} no text", inputs_->size() == 1
                                               ? inputs_->name(0) + " holds"
                                               : fmt::format("{} files hold", inputs_->size())));
    tell("read", bytes);
    total_bytes_ = bytes;
  }

  static std::uint64_t bytes_of(const Document& document) {
    if (document.record == nullptr) return document.text.size();
    std::uint64_t bytes = 0;
    for (const std::string& part : document.record->parts) bytes += part.size();
    return bytes;
  }

  // Learns the classes as they appear, unless they are given; validation brings none of its own.
  void note_label(const TextRecord& record, bool is_for_validation) {
    if (!options_.source.records->labels.empty()) return;  // known, and checked by the reader
    if (std::ranges::count(labels_, record.label) > 0) return;
    if (is_for_validation)
      throw FileError(record.where, options_.source.records->label,
                      fmt::format("the label \"{}\" is none of the training set's: {}",
                                  printable(record.label), printable(join(labels_, ", "), 200)),
                      "correct it, or list all with --labels");
    if (labels_.size() == kMostLabels)
      throw FileError(record.where, options_.source.records->label,
                      fmt::format("more than {} different labels", kMostLabels),
                      "is this the right column? Scores are for --task regress");
    labels_.push_back(record.label);
  }

  // Labels that are all whole numbers are in their order, not in that of the file.
  void sort_labels() {
    if (!has_records() || !options_.source.records->labels.empty()) return;
    const auto is_number = [](const std::string& label) {
      return label.size() <= 9 &&
             std::ranges::all_of(label, [](char c) { return c >= '0' && c <= '9'; });
    };
    if (std::ranges::all_of(labels_, is_number))
      std::ranges::stable_sort(labels_, {},
                               [](const std::string& label) { return std::stol(label); });
  }

  void train_tokeniser() {
    if (options_.train_vocabulary == 0) return;
    PieceCounts pieces;
    std::uint64_t number = 0, bytes = 0;
    for_each([&](const Document& document, bool is_for_validation) {
      if (is_for_validation) return;
      const std::string_view text = split_document(split_, number++, document.text).train;
      if (document.record == nullptr)
        pieces.add(text);
      else if (!text.empty())
        for (const std::string& part : document.record->parts) pieces.add(part);
      tell("train", bytes += bytes_of(document));
    });
    BpeTraining training = train_bpe(pieces, options_.train_vocabulary);
    report_.note = std::move(training.note);
    tokeniser_ = Tokeniser(std::move(training.vocabulary));
  }

  void encode() {
    if (const fs::path folder = fs::path(options_.output).parent_path(); !folder.empty())
      fs::create_directories(folder);
    // A prepare that was killed may have left some, and of other outputs than ours.
    for (const std::string& path : all_outputs(options_.output)) fs::remove_all(temporary(path));
    const std::int32_t vocabulary = tokeniser_.vocabulary_size();
    train_.emplace(options_.output, vocabulary);
    if (has_validation()) valid_.emplace(valid_prefix(options_.output), vocabulary);
    EncodeBatch batch(tokeniser_, options_.threads);
    std::uint64_t number = 0;
    for_each([&](const Document& document, bool is_for_validation) {
      const SplitText text = is_for_validation ? SplitText{{}, document.text}
                                               : split_document(split_, number++, document.text);
      if (document.record != nullptr) return feed_record(batch, document, text.train.empty());
      if (document.prompt_bytes > 0) return feed_pair(batch, document, text.train.empty());
      feed(batch, {text.train, document.owner}, kTrain);
      feed(batch, {text.valid, document.owner}, kValid);
    });
    write(batch);
  }

  // Encodes a prompt and its completion each by itself, so that no token has a part of both. A pair
  // that validation would cut stays in the training part.
  void feed_pair(EncodeBatch& batch, const Document& pair, bool is_valid) {
    const int part = is_valid ? kValid : kTrain;
    feed(batch, {pair.text.substr(0, pair.prompt_bytes), pair.owner}, part | kPrompt);
    feed(batch, {pair.text.substr(pair.prompt_bytes), pair.owner}, part);
  }

  // Encodes each part by itself. A record that validation would cut stays in the training part.
  void feed_record(EncodeBatch& batch, const Document& document, bool is_valid) {
    const int target = (is_valid ? kValid : kTrain) | kRecordPart;
    const std::vector<std::string>& parts = document.record->parts;
    for (std::size_t p = 0; p < parts.size(); ++p)
      feed(batch, {.text = parts[p], .owner = document.owner},
           target | (p + 1 == parts.size() ? kLastPart : 0));
    (is_valid ? *valid_ : *train_).add_labels(labels_of(*document.record));
  }

  std::vector<double> labels_of(const TextRecord& record) const {
    if (task() == TaskKind::regress) return {score_of(record)};
    if (task() == TaskKind::classify)
      return {static_cast<double>(std::ranges::find(labels_, record.label) - labels_.begin())};
    if (task() != TaskKind::span) return {};
    if (!record.answer) return {-1, -1};
    const TokenSpan found = span_of(tokeniser_, record.parts[1], *record.answer);
    return {static_cast<double>(found.first), static_cast<double>(found.last)};
  }

  void end_record_part(IndexedWriter& writer, bool is_last) const {
    // A sentence of characters that a tokeniser drops is none.
    const bool is_dropped = task() == TaskKind::masked && !writer.has_open_part();
    if (!is_dropped) writer.end_part();
    if (is_last && writer.has_open_record()) writer.end_record();
  }

  void feed(EncodeBatch& batch, Document document, int target) {
    while (!document.text.empty()) {
      document.text = batch.add(document, target);
      if (batch.is_full()) write(batch);
    }
  }

  void write(EncodeBatch& batch) {
    for (const EncodedPart& part : batch.encode()) {
      const bool is_valid = (part.target & kValid) != 0, is_prompt = (part.target & kPrompt) != 0;
      IndexedWriter& writer = is_valid ? *valid_ : *train_;
      PartReport& report = is_valid ? report_.valid : report_.train;
      writer.add(part.tokens);
      report.bytes += part.text.size();
      if (!part.ends_document) continue;
      if ((part.target & kRecordPart) != 0) {
        end_record_part(writer, (part.target & kLastPart) != 0);
        continue;
      }
      if (is_prompt) {
        writer.end_prompt();
        continue;
      }
      const std::int32_t end = tokeniser_.end_of_document();
      if (options_.append_end_of_document) writer.add({&end, 1});
      writer.end_document();
    }
    batch.clear();
    tell("encode", report_.bytes(), train_->tokens() + (valid_ ? valid_->tokens() : 0));
  }

  void commit() {
    check_parts();
    sync();
    Exchange exchange(all_outputs(options_.output));
    exchange.begin(options_.overwrite);
    rename_path(temporary(report_.tokeniser_folder), report_.tokeniser_folder);
    if (valid_) valid_->commit();
    train_->commit();
    exchange.finish();
  }

  void check_parts() const {
    for (const auto* writer : {&train_, &valid_})
      if (*writer && (*writer)->documents() == 0 && valid_inputs_)
        throw ConfigError(fmt::format("{}: no text for {}",
                                      writer == &train_ ? "INPUT" : "--validation",
                                      writer == &train_ ? "training" : "validation"));
      else if (*writer && (*writer)->documents() == 0)
        throw ConfigError(fmt::format(
            "--valid {} of {} bytes in {} documents leaves the {} part empty", split_.share,
            total_bytes_, split_.documents, writer == &train_ ? "training" : "validation"));
  }

  // Everything that needs space, under temporary names: a full disk costs no old dataset.
  void sync() {
    report_.tokeniser_folder = tokeniser_folder(options_.output);
    sync_part(*train_, options_.output, report_.train);
    if (valid_) sync_part(*valid_, valid_prefix(options_.output), report_.valid);
    tokeniser_.save(temporary(report_.tokeniser_folder));
  }

  void sync_part(IndexedWriter& writer, const std::string& prefix, PartReport& report) const {
    const Sidecar sidecar =
        writer.sync(to_text(tokeniser_.kind()), report.bytes, special(), record_info());
    report.prefix = prefix;
    report.documents = sidecar.documents;
    report.tokens = sidecar.tokens;
    report.prompts = sidecar.prompts;
  }

  std::optional<RecordInfo> record_info() const {
    if (!has_records()) return {};
    const RecordOptions& records = *options_.source.records;
    const bool has_pair = task() != TaskKind::masked && !records.pair.empty();
    return RecordInfo{.task = task(),
                      .parts = task() == TaskKind::masked ? 0
                               : has_pair                 ? 2
                                                          : 1,
                      .labels_per_record = labels_per_record(task()),
                      .label_names = labels_};
  }

  const PrepareOptions& options_;
  Stopwatch watch_;
  std::optional<Inputs> inputs_;
  std::optional<Inputs> valid_inputs_;
  std::vector<std::string> labels_;  // by class
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
  if (!options.validation_inputs.empty()) check_validation_inputs(options, problems);
  if (options.source.is_side_by_side && options.inputs.size() != 2)
    problems.push_back({"--source", fmt::format("{} files: one source and one target belong "
                                                "together",
                                                options.inputs.size())});
  if (options.source.records) append(problems, check(*options.source.records));
  check_output(options, problems);
  check_tokeniser(options, problems);
  if (options.source.json_key.empty()) problems.push_back({"--text-key", "is empty"});
  if (!(options.validation_share >= 0 && options.validation_share < 1))
    problems.push_back(
        {"--valid", fmt::format("{} is not within 0 <= share < 1", options.validation_share)});
  if (options.threads < 0 || options.threads > kMostThreads)
    problems.push_back(
        {"--threads", fmt::format("{} is not within 0 ... {}", options.threads, kMostThreads)});
  return problems;
}

PrepareReport prepare(const PrepareOptions& options) {
  return Preparation(options).run();
}

}  // namespace laconic
