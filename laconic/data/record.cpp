#include "laconic/data/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/window.hpp"

namespace laconic {

namespace {

constexpr const char* kPrepareRecordsAgain = "prepare the data again";

std::vector<std::int64_t> read_range(const IndexedDataset& tokens, Index::Range range) {
  std::vector<std::int64_t> out(range.end - range.begin);
  tokens.read(range.begin, out);
  return out;
}

bool is_class(double label, std::size_t classes) {
  return label >= 0 && label < static_cast<double>(classes) && label == std::floor(label);
}

bool is_span(double first, double last, std::uint64_t tokens) {
  if (first == -1 && last == -1) return true;
  return first >= 0 && first <= last && last < static_cast<double>(tokens) &&
         first == std::floor(first) && last == std::floor(last);
}

}  // namespace

RecordDataset::RecordDataset(std::shared_ptr<const IndexedDataset> tokens, RecordInfo info,
                             std::int64_t context, std::int64_t vocabulary, const TokenSet& set)
    : tokens_(std::move(tokens)), info_(std::move(info)), context_(context), set_(set) {
  if (samples() == 0) throw ConfigError(fmt::format("{} has no record", tokens_->prefix()));
  check_vocabulary(*tokens_, vocabulary);
  check_parts();
  if (info_.labels_per_record == 0) return;
  labels_ = std::make_shared<const MappedFile>(tokens_->prefix() + ".labels");
  check_labels();
}

void RecordDataset::check_parts() const {
  for (std::uint64_t s = 0; s < samples(); ++s) {
    const Index::Range sequences = tokens_->index().sequences_of(s);
    if (sequences.end - sequences.begin != static_cast<std::uint64_t>(info_.parts))
      throw FileError(tokens_->prefix() + ".idx", "document marks",
                      fmt::format("record {} has {} parts, should have {}", s,
                                  sequences.end - sequences.begin, info_.parts),
                      kPrepareRecordsAgain);
  }
}

void RecordDataset::check_labels() const {
  const std::uint64_t expected =
      samples() * static_cast<std::uint64_t>(info_.labels_per_record) * sizeof(double);
  if (labels_->bytes().size() != expected)
    throw FileError(
        labels_->path(), "size",
        fmt::format("{} bytes; {} records with {} labels each make {}", labels_->bytes().size(),
                    samples(), info_.labels_per_record, expected),
        kPrepareRecordsAgain);
  for (std::uint64_t s = 0; s < samples(); ++s) {
    const double first = label(s, 0);
    const double last = info_.labels_per_record > 1 ? label(s, 1) : first;
    const bool is_good = info_.task == TaskKind::classify
                             ? is_class(first, info_.label_names.size())
                         : info_.task == TaskKind::span ? is_span(first, last, part_size(s, 1))
                                                        : std::isfinite(first);
    if (!is_good)
      throw FileError(labels_->path(), fmt::format("record {}", s),
                      info_.task == TaskKind::span
                          ? fmt::format("tokens {} to {} are no answer in a context of {}", first,
                                        last, part_size(s, 1))
                      : info_.task == TaskKind::classify
                          ? fmt::format("{} is none of {} classes", first, info_.label_names.size())
                          : fmt::format("{} is not finite", first),
                      kPrepareRecordsAgain);
  }
}

Index::Range RecordDataset::range_of(std::uint64_t sample, std::uint64_t part) const {
  LACONIC_ASSERT(sample < samples() && part < static_cast<std::uint64_t>(info_.parts),
                 fmt::format("record {} of {}, part {}", sample, samples(), part));
  return tokens_->index().sequence(tokens_->index().sequences_of(sample).begin + part);
}

std::vector<std::int64_t> RecordDataset::part(std::uint64_t sample, std::uint64_t part) const {
  return read_range(*tokens_, range_of(sample, part));
}

std::uint64_t RecordDataset::part_size(std::uint64_t sample, std::uint64_t part) const {
  const Index::Range range = range_of(sample, part);
  return range.end - range.begin;
}

double RecordDataset::label(std::uint64_t sample, std::uint64_t i) const {
  const auto per_record = static_cast<std::uint64_t>(info_.labels_per_record);
  LACONIC_ASSERT(sample < samples() && i < per_record,
                 fmt::format("label {} of record {} of {}", i, sample, samples()));
  return get<double>(labels_->bytes(), (sample * per_record + i) * sizeof(double));
}

SentenceDataset::SentenceDataset(std::shared_ptr<const IndexedDataset> tokens, std::int64_t context,
                                 std::int64_t vocabulary, const TokenSet& set)
    : tokens_(std::move(tokens)), context_(context), set_(set) {
  check_vocabulary(*tokens_, vocabulary);
  if (documents() < 2)
    throw ConfigError(
        fmt::format("{} has {} documents: a sentence that does not follow comes "
                    "from another one, so there must be two",
                    tokens_->prefix(), documents()));
  for (std::uint64_t d = 0; d < documents(); ++d) add_chunks(d);
  if (chunks_.empty())
    throw ConfigError(
        fmt::format("none of the {} documents of {} has two sentences in a row that "
                    "fit into a context of {} beside three special tokens",
                    documents(), tokens_->prefix(), context_));
}

void SentenceDataset::add_chunks(std::uint64_t document) {
  const auto room = static_cast<std::uint64_t>(std::max<std::int64_t>(context_ - 3, 0));
  const Index::Range sequences = tokens_->index().sequences_of(document);
  Chunk chunk{.document = document};
  std::uint64_t used = 0;
  const auto close = [&] {
    if (chunk.end - chunk.first >= 2) chunks_.push_back(chunk);
  };
  for (std::uint64_t s = sequences.begin; s < sequences.end; ++s) {
    const Index::Range range = tokens_->index().sequence(s);
    const std::uint64_t size = range.end - range.begin;
    if (size == 0)
      throw FileError(
          tokens_->prefix() + ".idx", "lengths",
          fmt::format("sentence {} of document {} is empty", s - sequences.begin, document),
          kPrepareRecordsAgain);
    if (used + size > room) {
      close();
      chunk.first = s - sequences.begin;
      used = 0;
    }
    used += size;
    chunk.end = s - sequences.begin + 1;
  }
  if (sequences.begin == sequences.end)
    throw FileError(tokens_->prefix() + ".idx", "document marks",
                    fmt::format("document {} has no sentence", document), kPrepareRecordsAgain);
  close();
}

std::uint64_t SentenceDataset::sentences(std::uint64_t document) const {
  const Index::Range sequences = tokens_->index().sequences_of(document);
  return sequences.end - sequences.begin;
}

std::vector<std::int64_t> SentenceDataset::sentence(std::uint64_t document,
                                                    std::uint64_t number) const {
  LACONIC_ASSERT(document < documents() && number < sentences(document),
                 fmt::format("sentence {} of document {}", number, document));
  return read_range(
      *tokens_, tokens_->index().sequence(tokens_->index().sequences_of(document).begin + number));
}

}  // namespace laconic
