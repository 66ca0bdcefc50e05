#include "laconic/link/sample.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/store/delta_checkpoint.hpp"
#include "laconic/store/reference_record.hpp"

namespace laconic {

SampleRange::SampleRange(const std::string& link, const TensorSpec& batch, std::size_t keys) {
  if (batch.shape.empty() || batch.shape[0] != static_cast<std::int64_t>(keys))
    throw ConfigError(fmt::format("{}: {} sample ids for a tensor of shape [{}]", link, keys,
                                  fmt::join(batch.shape, ", ")));
  require_float(link, batch.dtype);
  spec_.dtype = batch.dtype;
  spec_.shape.assign(batch.shape.begin() + 1, batch.shape.end());
  bytes_ = elements_of(spec_) * bytes_of(spec_.dtype);
}

void require_encodable(const std::string& link, const CodecSpec& codec, const TensorSpec& tensor) {
  Problems problems = check(codec, tensor);
  for (Problem& problem : problems) problem.where = fmt::format("{}: {}", link, problem.where);
  refuse(problems);
}

void require_float(const std::string& link, Dtype dtype) {
  if (!is_float(dtype))
    throw ConfigError(
        fmt::format("{}: {} is not a float: only raw messages carry it", link, name_of(dtype)));
}

std::uint64_t message_seed(std::uint64_t link_seed, std::uint64_t sequence) {
  const Key key = derive(key_of(link_seed), sequence);
  return std::uint64_t{key.hi} << 32 | key.lo;
}

std::uint64_t hash_of(ByteView record) {
  Checksum checksum;
  checksum.update(record);
  return checksum.value();
}

bool is_hashed(std::uint64_t key, std::uint32_t visits, int every) {
  const std::uint64_t phase = derive(key_of(key), 0).lo;
  return (phase + visits) % static_cast<std::uint64_t>(every) == 0;
}

void decode_to_floats(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                      const CodecInput& input, float* out) {
  if (tensor.dtype == Dtype::f32) return decode(codec, payload, input, {tensor, out});
  const std::size_t count = elements_of(tensor);
  const std::unique_ptr<std::uint64_t[]> room(
      new std::uint64_t[count * bytes_of(tensor.dtype) / 8 + 1]);  // aligned for any dtype
  decode(codec, payload, input, {tensor, room.get()});
  widen(tensor.dtype, room.get(), count, out);
}

ReferenceUpdate::ReferenceUpdate(Reference kind, std::size_t count, ByteView before,
                                 std::span<std::byte> after)
    : kind_(kind), count_(count), record_(after), scratch_(kind == Reference::f32 ? 0 : count) {
  if (kind == Reference::f32) {
    before_ = reinterpret_cast<const float*>(before.data());  // records are aligned
    after_ = reinterpret_cast<float*>(after.data());
    return;
  }
  read_record(kind, before, count, scratch_.data());
  before_ = after_ = scratch_.data();
}

bool ReferenceUpdate::finish() {
  if (kind_ == Reference::f32) return true;
  write_record(kind_, after_, count_, record_);
  return is_finite(kind_, record_, count_);
}

namespace {

std::unique_ptr<DeltaStore> make_store(const LinkSpec& link, const char* end,
                                       std::uint64_t record_bytes) {
  const auto& delta = std::get<Delta>(link.memory);
  const std::filesystem::path file =
      delta.folder.empty() ? "" : std::filesystem::path(delta.folder) / (link.name + "." + end);
  return std::make_unique<DeltaStore>(DeltaStoreSpec{.path = file.string(),
                                                     .budget_bytes = delta.budget_bytes,
                                                     .record_bytes = record_bytes,
                                                     .device_bytes = delta.device_bytes});
}

}  // namespace

DeltaStore& ensure_store(std::unique_ptr<DeltaStore>& store, const LinkSpec& link, const char* end,
                         const TensorSpec& sample) {
  const std::uint64_t bytes =
      record_bytes(std::get<Delta>(link.memory).reference, elements_of(sample));
  if (!store) store = make_store(link, end, bytes);
  if (store->record_bytes() != bytes)
    throw ConfigError(fmt::format(
        "{}: a sample of shape [{}] needs {} bytes for its reference; those before needed {}",
        link.name, fmt::join(sample.shape, ", "), bytes, store->record_bytes()));
  return *store;
}

void save_references(DeltaStore* store, const LinkSpec& link, const std::string& path) {
  const std::string file = path + kReferencesSuffix;
  if (!std::holds_alternative<Delta>(link.memory)) return void(std::filesystem::remove(file));
  if (store != nullptr) return save_records(*store, file);
  DeltaStore none({});
  save_records(none, file);
}

std::unique_ptr<DeltaStore> load_references(const LinkSpec& link, const char* end,
                                            const std::string& path) {
  const std::string file = path + kReferencesSuffix;
  const auto* delta = std::get_if<Delta>(&link.memory);
  if (delta == nullptr) {
    if (std::filesystem::exists(file))
      throw FileError(file, "", fmt::format("{} keeps no references", link.name));
    return nullptr;
  }
  const SafetensorsFile saved(file);
  const std::vector<std::int64_t>& shape = saved.at("records").shape;
  if (shape.size() != 2) throw FileError(file, "records", "are not a table");
  if (saved.at("keys").shape != std::vector{shape[0]})
    throw FileError(file, "keys", fmt::format("are not {}", shape[0]));
  if (shape[0] == 0) return nullptr;  // of whatever size: the next sample tells
  auto store = make_store(link, end, static_cast<std::uint64_t>(shape[1]));
  load_records(*store, file);
  Bytes record(store->record_bytes());
  for (const auto& [key, visits] : store->stored_keys()) {
    store->read_stored(key, record);
    if (!is_record(delta->reference, record))
      throw FileError(file, "records", fmt::format("that of sample {} is not a reference", key),
                      "the file is damaged, or of a link with another kind of reference");
  }
  return store;
}

void commit_bases(const LinkSpec& spec, BasisMemory& codec, BasisMemory& first) {
  codec.commit(spec.codec, spec.seed);
  const auto* delta = std::get_if<Delta>(&spec.memory);
  first.commit(delta != nullptr ? delta->first : CodecSpec(), spec.seed);
}

void learn_change(BasisMemory& memory, const MessageSpec& message, std::size_t index,
                  const TensorSpec& frame, ReferenceUpdate& update) {
  const std::size_t count = elements_of(frame);
  Scratch<float> change(count);
  for (std::size_t i = 0; i < count; ++i) change[i] = update.after()[i] - update.before()[i];
  memory.learn(message, index, frame, change.data());
}

}  // namespace laconic
