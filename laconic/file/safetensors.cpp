#include "laconic/file/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/safetensors_json.hpp"

namespace laconic {

namespace {

struct Spelling {
  Dtype dtype;
  std::string_view text;
};

constexpr std::array<Spelling, kDtypes> kSpellings = {{{Dtype::f64, "F64"},
                                                       {Dtype::f32, "F32"},
                                                       {Dtype::f16, "F16"},
                                                       {Dtype::bf16, "BF16"},
                                                       {Dtype::i64, "I64"},
                                                       {Dtype::i32, "I32"},
                                                       {Dtype::i16, "I16"},
                                                       {Dtype::i8, "I8"},
                                                       {Dtype::u8, "U8"},
                                                       {Dtype::boolean, "BOOL"}}};

constexpr std::uint64_t kLengthBytes = sizeof(std::uint64_t);
constexpr const char* kDamaged = "the file is damaged; fetch it or write it again";
constexpr const char* kIncomplete = "the copy is incomplete; fetch it again";

// The JSON text, which starts at byte 8.
std::string_view header_text(ByteView file_bytes, const std::string& path) {
  const std::uint64_t size = file_bytes.size();
  if (size < kLengthBytes)
    throw FileError(path, "header length", fmt::format("the file has {} bytes of 8", size),
                    kIncomplete);
  const auto length = get<std::uint64_t>(file_bytes, 0);
  if (length > kMaxSafetensorsHeaderBytes)
    throw FileError(path, "header length",
                    fmt::format("{} is more than {}", length, kMaxSafetensorsHeaderBytes),
                    "this is not a safetensors file");
  if (length > size - kLengthBytes)
    throw FileError(path, "header length",
                    fmt::format("{} leads past the end of the file ({} bytes)", length, size),
                    kIncomplete);
  const std::string_view text(reinterpret_cast<const char*>(file_bytes.data()) + kLengthBytes,
                              length);
  if (!text.starts_with('{'))
    throw FileError(path, "header", "does not start with '{'", "this is not a safetensors file");
  return text;
}

// The offsets are still those of the JSON here: from the start of the data.
void check_size(const SafetensorsEntry& entry, std::uint64_t data_bytes, const std::string& path) {
  if (entry.begin > entry.end)
    throw FileError(path, printable(entry.name),
                    fmt::format("data_offsets [{}, {}] run backwards", entry.begin, entry.end),
                    kDamaged);
  if (entry.end > data_bytes)
    throw FileError(path, printable(entry.name),
                    fmt::format("ends at byte {} of the data, which has {}", entry.end, data_bytes),
                    kIncomplete);
  const auto bytes = bytes_of(entry.dtype, entry.shape);
  if (!bytes)
    throw FileError(path, printable(entry.name),
                    fmt::format("shape [{}] is too large", fmt::join(entry.shape, ", ")), kDamaged);
  if (*bytes != entry.end - entry.begin)
    throw FileError(path, printable(entry.name),
                    fmt::format("shape [{}] of {} needs {} bytes, data_offsets give {}",
                                fmt::join(entry.shape, ", "), to_text(entry.dtype), *bytes,
                                entry.end - entry.begin),
                    kDamaged);
}

// Requires: entries in the order of their bytes.
void check_coverage(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                    const std::string& path) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered)
      throw FileError(
          path, printable(entry.name),
          fmt::format("starts at byte {} of the data, {} byte {}", entry.begin,
                      entry.begin < covered ? "overlapping what ends at" : "leaving a hole after",
                      covered),
          kDamaged);
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw FileError(path, "data",
                    fmt::format("{} bytes, of which the header names {}", data_bytes, covered),
                    kDamaged);
}

void index_by_name(SafetensorsHeader& header, const std::string& path) {
  const auto& entries = header.entries;
  header.by_name.resize(entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), std::size_t{0});
  std::ranges::sort(
      header.by_name, {}, [&](std::size_t i) -> auto& { return entries[i].name; });
  const auto twice = std::ranges::adjacent_find(
      header.by_name, {}, [&](std::size_t i) -> auto& { return entries[i].name; });
  if (twice != header.by_name.end())
    throw FileError(path, printable(entries[*twice].name), "is named twice in the header",
                    kDamaged);
}

}  // namespace

std::string_view to_text(Dtype dtype) {
  return std::ranges::find(kSpellings, dtype, &Spelling::dtype)->text;
}

std::optional<Dtype> parse_dtype(std::string_view text) {
  const auto* row = std::ranges::find(kSpellings, text, &Spelling::text);
  return row == kSpellings.end() ? std::nullopt : std::optional(row->dtype);
}

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      by_name, name, {}, [&](std::size_t i) { return std::string_view(entries[i].name); });
  return at != by_name.end() && entries[*at].name == name ? &entries[*at] : nullptr;
}

SafetensorsHeader parse_safetensors(ByteView file_bytes, const std::string& path) {
  const std::string_view text = header_text(file_bytes, path);
  const std::uint64_t data_begin = kLengthBytes + text.size();
  const std::uint64_t data_bytes = file_bytes.size() - data_begin;
  SafetensorsHeader header = parse_safetensors_json(text, path);
  for (const SafetensorsEntry& entry : header.entries) check_size(entry, data_bytes, path);
  // Stable and by both ends: an empty tensor sits before the one that starts where it does.
  std::ranges::stable_sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  check_coverage(header.entries, data_bytes, path);
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  index_by_name(header, path);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors(file_.bytes(), path)) {}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : entries()) names.push_back(entry.name);
  const std::string near = nearest(name, names);
  throw FileError(path(), std::string(name),
                  fmt::format("no such tensor among {}", entries().size()),
                  near.empty() ? "" : fmt::format("the nearest name is '{}'", printable(near)));
}

ByteView SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(entry.begin, entry.end - entry.begin);
}

}  // namespace laconic
