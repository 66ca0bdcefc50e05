#include "laconic/file/safetensors_writer.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

std::string metadata_json(const SafetensorsMetadata& metadata) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : metadata) pairs.push_back(quoted(key) + ":" + quoted(value));
  return fmt::format("\"{}\":{{{}}}", kSafetensorsMetadataKey, fmt::join(pairs, ","));
}

std::uint64_t checked_bytes(const SafetensorsSpec& spec) {
  const auto bytes = bytes_of(spec.dtype, spec.shape);
  LACONIC_ASSERT(bytes.has_value(),
                 fmt::format("{} has shape [{}]", spec.name, fmt::join(spec.shape, ", ")));
  return *bytes;
}

}  // namespace

std::string safetensors_header(const std::vector<SafetensorsSpec>& specs,
                               const SafetensorsMetadata& metadata) {
  std::vector<std::string> parts;
  if (!metadata.empty()) parts.push_back(metadata_json(metadata));
  std::set<std::string> names{std::string(kSafetensorsMetadataKey)};
  std::uint64_t offset = 0;
  for (const SafetensorsSpec& spec : specs) {
    LACONIC_ASSERT(names.insert(spec.name).second, "the name " + spec.name + " is taken");
    const std::uint64_t end = offset + checked_bytes(spec);
    parts.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                quoted(spec.name), to_text(spec.dtype), fmt::join(spec.shape, ","),
                                offset, end));
    offset = end;
  }
  std::string json = fmt::format("{{{}}}", fmt::join(parts, ","));
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  LACONIC_ASSERT(length <= kMaxSafetensorsHeaderBytes, fmt::format("a header of {} bytes", length));
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> specs,
                                     const SafetensorsMetadata& metadata)
    : specs_(std::move(specs)), file_(path) {
  const std::string header = safetensors_header(specs_, metadata);
  file_.write(header);
  checksum_.update(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(ByteView bytes) {
  LACONIC_ASSERT(next_ < specs_.size(), fmt::format("all {} tensors are written", specs_.size()));
  const SafetensorsSpec& spec = specs_[next_];
  LACONIC_ASSERT(
      written_ == 0 && bytes.size() == checked_bytes(spec),
      fmt::format("{} has {} bytes, given {}", spec.name, checked_bytes(spec), bytes.size()));
  write_piece(bytes);
}

void SafetensorsWriter::write_piece(ByteView bytes) {
  LACONIC_ASSERT(next_ < specs_.size(), fmt::format("all {} tensors are written", specs_.size()));
  const SafetensorsSpec& spec = specs_[next_];
  const std::uint64_t size = checked_bytes(spec);
  LACONIC_ASSERT(
      bytes.size() <= size - written_,
      fmt::format("{} has {} bytes, given {} + {}", spec.name, size, written_, bytes.size()));
  file_.write(bytes);
  checksum_.update(bytes);
  written_ += bytes.size();
  if (written_ < size) return;
  written_ = 0;
  ++next_;
}

void SafetensorsWriter::commit() {
  LACONIC_ASSERT(next_ == specs_.size(), fmt::format("{} of {} tensors", next_, specs_.size()));
  file_.commit();
}

}  // namespace laconic
