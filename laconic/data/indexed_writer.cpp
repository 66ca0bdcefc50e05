#include "laconic/data/indexed_writer.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/index_format.hpp"

namespace laconic {

IndexedWriter::IndexedWriter(const std::string& prefix, std::int64_t vocabulary)
    : prefix_(prefix),
      vocabulary_(vocabulary),
      type_(token_type_for(vocabulary)),
      bin_(prefix + ".bin"),
      idx_(prefix + ".idx"),
      json_(prefix + ".json") {}

void IndexedWriter::add(std::span<const std::int32_t> tokens) {
  ByteView bytes = as_bytes(tokens);
  if (type_ == TokenType::uint16) {
    narrow_.assign(tokens.begin(), tokens.end());
    bytes = as_bytes(std::span<const std::uint16_t>(narrow_));
  }
  checksum_.update(bytes);
  bin_.write(bytes);
  tokens_ += tokens.size();
  open_tokens_ += tokens.size();
}

void IndexedWriter::end_prompt() {
  end_sequence();
  ++prompts_;
}

void IndexedWriter::end_document() {
  end_sequence();
  marks_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

void IndexedWriter::end_record() {
  LACONIC_ASSERT(!has_open_part(), fmt::format("{} tokens in an open part", open_tokens_));
  marks_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

bool IndexedWriter::has_open_record() const {
  return static_cast<std::int64_t>(lengths_.size()) > marks_.back();
}

void IndexedWriter::add_labels(std::span<const double> labels) {
  labels_.insert(labels_.end(), labels.begin(), labels.end());
}

void IndexedWriter::end_sequence() {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (open_tokens_ > kMost)
    throw ConfigError(fmt::format(
        "document {} has {} tokens, but the format allows {}; split it (--documents line)",
        documents(), open_tokens_, kMost));
  lengths_.push_back(static_cast<std::int32_t>(std::exchange(open_tokens_, 0)));
}

Bytes IndexedWriter::index() const {
  Bytes out;
  out.reserve(kIndexHeaderBytes + lengths_.size() * 12 + marks_.size() * 8);
  for (const char c : kIndexMagic) put(out, c);
  put(out, kIndexVersion);
  put(out, type_);
  put(out, std::uint64_t{lengths_.size()});
  put(out, std::uint64_t{marks_.size()});
  for (const std::int32_t length : lengths_) put(out, length);
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths_) {
    put(out, pointer);
    pointer += std::int64_t{length} * static_cast<std::int64_t>(size_of(type_));
  }
  for (const std::int64_t mark : marks_) put(out, mark);
  return out;
}

Sidecar IndexedWriter::sync(std::string_view tokeniser, std::uint64_t source_bytes,
                            const SpecialTokens& special, std::optional<RecordInfo> records) {
  LACONIC_ASSERT(open_tokens_ == 0, fmt::format("{} tokens in an open document", open_tokens_));
  const auto per_record = records ? static_cast<std::size_t>(records->labels_per_record) : 0;
  LACONIC_ASSERT(labels_.size() == documents() * per_record,
                 fmt::format("{} labels of {} records", labels_.size(), documents()));
  if (per_record > 0) {
    const ByteView bytes = as_bytes(std::span<const double>(labels_));
    Checksum sum;
    sum.update(bytes);
    records->labels_xxh3 = sum.hex();
    labels_file_.emplace(prefix_ + ".labels");
    labels_file_->write(bytes);
    labels_file_->sync();
  }
  Sidecar sidecar{.tokeniser = std::string(tokeniser),
                  .vocabulary = vocabulary_,
                  .documents = documents(),
                  .tokens = tokens(),
                  .bytes = source_bytes,
                  .bin_xxh3 = checksum_.hex(),
                  .prompts = prompts_,
                  .special = special,
                  .records = std::move(records)};
  idx_.write(index());
  json_.write(to_text(sidecar));
  for (AtomicFile* file : {&bin_, &idx_, &json_}) file->sync();
  return sidecar;
}

void IndexedWriter::commit() {
  std::filesystem::remove(prefix_ + ".idx");
  bin_.commit();
  if (labels_file_) labels_file_->commit();
  json_.commit();
  idx_.commit();
}

}  // namespace laconic
