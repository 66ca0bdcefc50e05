#include "laconic/store/delta_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kCommitBytes = std::uint64_t{64} << 20;  // of loaded records, at once
constexpr const char* kDamaged = "the file is damaged; use an older checkpoint";
constexpr const char* kOtherRun = "it belongs to another run; use this run's own checkpoint";

std::vector<SafetensorsSpec> layout(std::uint64_t records, std::uint64_t record_bytes) {
  const auto n = static_cast<std::int64_t>(records);
  return {{"keys", Dtype::i64, {n}},
          {"visits", Dtype::i32, {n}},
          {"records", Dtype::u8, {n, static_cast<std::int64_t>(record_bytes)}}};
}

// The tensor of a checkpoint, which must have the type and shape that layout() gives it.
ByteView tensor(const SafetensorsFile& file, const SafetensorsSpec& spec) {
  const SafetensorsEntry& entry = file.at(spec.name);
  if (entry.dtype != spec.dtype || entry.shape != spec.shape)
    throw FileError(
        file.path(), spec.name,
        fmt::format("{} [{}], where this store needs {} [{}]", to_text(entry.dtype),
                    fmt::join(entry.shape, ", "), to_text(spec.dtype), fmt::join(spec.shape, ", ")),
        kOtherRun);
  return file.bytes(entry);
}

std::uint64_t records_in(const SafetensorsFile& file) {
  const SafetensorsEntry& keys = file.at("keys");
  return keys.shape.empty() ? 0 : static_cast<std::uint64_t>(keys.shape[0]);
}

std::vector<std::uint64_t> distinct_keys(ByteView bytes, const std::string& path) {
  std::vector<std::uint64_t> keys(bytes.size() / sizeof(std::uint64_t));
  if (!keys.empty()) std::memcpy(keys.data(), bytes.data(), bytes.size());
  std::vector<std::uint64_t> sorted = keys;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    throw FileError(path, "keys", fmt::format("key {} stands there twice", *twice), kDamaged);
  return keys;
}

void require_visits(ByteView visits, const std::string& path) {
  for (std::size_t at = 0; at < visits.size(); at += sizeof(std::uint32_t))
    if (get<std::uint32_t>(visits, at) == 0)
      throw FileError(path, "visits", fmt::format("record {} has none", at / sizeof(std::uint32_t)),
                      kDamaged);
}

}  // namespace

void save_records(DeltaStore& store, const std::string& path) {
  const std::vector<DeltaStore::StoredKey> stored = store.stored_keys();
  SafetensorsWriter writer(path, layout(stored.size(), store.record_bytes()));
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> visits;
  for (const auto& [key, count] : stored) {
    keys.push_back(key);
    visits.push_back(count);
  }
  writer.write(std::as_bytes(std::span(keys)));
  writer.write(std::as_bytes(std::span(visits)));
  Bytes record(store.record_bytes());
  if (stored.empty() || record.empty()) writer.write({});
  for (const std::uint64_t key : keys) {
    if (record.empty()) break;
    store.read_stored(key, record);
    writer.write_piece(record);
  }
  writer.commit();
}

void load_records(DeltaStore& store, const std::string& path) {
  const SafetensorsFile file(path);
  const std::uint64_t count = records_in(file);
  const std::vector<SafetensorsSpec> specs = layout(count, store.record_bytes());
  const std::vector<std::uint64_t> keys = distinct_keys(tensor(file, specs[0]), path);
  const ByteView visits = tensor(file, specs[1]);
  require_visits(visits, path);
  const ByteView records = tensor(file, specs[2]);
  if (count > store.max_records())
    throw FileError(
        path, "keys",
        fmt::format("{} records, where the budget admits {}", count, store.max_records()),
        "raise the budget");
  store.clear();
  const std::uint64_t size = store.record_bytes();
  const std::uint64_t at_once = std::max<std::uint64_t>(1, kCommitBytes / (size + 1));
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto room = store.stage(keys[i], get<std::uint32_t>(visits, i * sizeof(std::uint32_t)));
    LACONIC_ASSERT(room.has_value(), fmt::format("record {} of {}", i, count));
    std::ranges::copy(records.subspan(i * size, size), room->begin());
    if ((i + 1) % at_once == 0) store.commit();
  }
  store.commit();
}

}  // namespace laconic
