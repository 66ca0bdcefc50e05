// file/safetensors.hpp — reading safetensors, the tensor files of Hugging Face.
//
//   u64 n | n bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, ...} | data
//
// As strict as the official reader: no holes, no overlaps, nothing left over,
// and every key once (JSON itself would let the last one win). A file that
// parses can be read without further checks. The bytes of a tensor are where
// the file has them, so they may be unaligned: memcpy, do not cast.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/base/dtype.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

std::string_view to_text(Dtype dtype);  // "BF16", as the format spells it
std::optional<Dtype> parse_dtype(std::string_view text);

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // from the start of the file, not of the data as in the JSON
  std::uint64_t end = 0;
  bool operator==(const SafetensorsEntry&) const = default;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  SafetensorsMetadata metadata;
  std::vector<std::size_t> by_name;  // positions in `entries`, sorted by name

  const SafetensorsEntry* find(std::string_view name) const;  // null when there is none
};

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the official limit
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

// `path` is only for messages. Throws FileError naming the tensor.
SafetensorsHeader parse_safetensors(ByteView file_bytes, const std::string& path);

class SafetensorsFile {
 public:
  SafetensorsFile() = default;
  // Throws FileError or SystemError.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const { return header_.find(name); }
  // Throws FileError that suggests the nearest name.
  const SafetensorsEntry& at(std::string_view name) const;
  // Requires: the entry is of this file. Valid as long as this object.
  ByteView bytes(const SafetensorsEntry& entry) const;
  ByteView bytes(std::string_view name) const { return bytes(at(name)); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace laconic
