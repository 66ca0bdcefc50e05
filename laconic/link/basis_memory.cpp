#include "laconic/link/basis_memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kRowsForEachColumn = 2;
constexpr char kSuffix[] = ".basis";

// How many messages of a step have as many rows as a basis is made of.
std::uint64_t messages_needed(const TensorSpec& tensor) {
  const MatrixShape shape = matrix_shape(tensor);
  if (shape.rows == 0) return 0;
  return (kRowsForEachColumn * shape.columns + shape.rows - 1) / shape.rows;
}

bool is_among_first(const MessageSpec& message, const TensorSpec& tensor) {
  return message.turn == 0 && message.number >= 0 &&
         static_cast<std::uint64_t>(message.number) < messages_needed(tensor);
}

std::vector<float> floats_in(const SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  if (entry == nullptr || entry->dtype != Dtype::f32)
    throw FileError(file.path(), name, "is not there, or not f32");
  const ByteView bytes = file.bytes(*entry);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::optional<TransformBasis> basis_in(const SafetensorsFile& file, const std::string& prefix) {
  if (file.find(prefix + "bits") == nullptr) return std::nullopt;
  TransformBasis basis;
  for (const float bits : floats_in(file, prefix + "bits")) {
    if (!(bits >= 1 && bits <= 8))
      throw FileError(file.path(), prefix + "bits", fmt::format("{} is not in 1 ... 8", bits));
    basis.bits.push_back(static_cast<std::uint8_t>(bits));
  }
  basis.directions = floats_in(file, prefix + "directions");
  if (basis.bits.empty() || basis.directions.size() % basis.bits.size() != 0)
    throw FileError(file.path(), prefix + "directions",
                    fmt::format("{} numbers are not those of {} directions",
                                basis.directions.size(), basis.bits.size()));
  basis.columns = basis.directions.size() / basis.bits.size();
  basis.hash = hash_of(basis);
  return basis;
}

}  // namespace

const TransformBasis* BasisMemory::basis_for(const CodecSpec& codec, std::uint64_t step,
                                             const MessageSpec& message,
                                             const TensorSpec& tensor) const {
  const auto* transform = std::get_if<Transform>(&codec);
  if (transform == nullptr || !current_ || message.turn > 0) return nullptr;
  const bool is_due = step % static_cast<std::uint64_t>(transform->refresh) == 0;
  return is_due && is_among_first(message, tensor) ? nullptr : &*current_;
}

bool BasisMemory::teaches(const CodecSpec& codec, const MessageSpec& message,
                          const TensorSpec& tensor, ByteView payload) {
  return std::holds_alternative<Transform>(codec) && !payload.empty() &&
         payload[0] == std::byte{0} && is_among_first(message, tensor);
}

void BasisMemory::learn(const MessageSpec& message, std::size_t index, const TensorSpec& frame,
                        const float* decoded) {
  const std::uint64_t columns = matrix_shape(frame).columns;
  if (columns != columns_) rows_.clear();  // a shorter last batch does not change it
  columns_ = columns;
  rows_[{message.number, index}].assign(decoded, decoded + elements_of(frame));
}

void BasisMemory::commit(const CodecSpec& codec, std::uint64_t seed) {
  const auto* transform = std::get_if<Transform>(&codec);
  if (is_refused_ || transform == nullptr) return forget();
  std::vector<float> rows;
  for (const auto& [key, part] : rows_) rows.insert(rows.end(), part.begin(), part.end());
  const std::uint64_t count = columns_ == 0 ? 0 : rows.size() / columns_;
  if (count > 0 && count >= columns_)
    if (auto next = make_basis(rows.data(), count, columns_, transform->bits, seed, current()))
      current_ = std::move(next);
  abandon();
}

void BasisMemory::abandon() {
  if (is_refused_) return forget();
  rows_.clear();
}

void BasisMemory::forget() {
  current_.reset();
  rows_.clear();
  is_refused_ = false;
}

void BasisMemory::restore(std::optional<TransformBasis> basis) {
  forget();
  current_ = std::move(basis);
}

void save_bases(const BasisMemory& codec, const BasisMemory& first, const std::string& path) {
  std::vector<SafetensorsSpec> specs;
  std::vector<std::vector<float>> values;
  for (const auto& [prefix, memory] :
       {std::pair<std::string, const BasisMemory*>{"codec.", &codec}, {"first.", &first}}) {
    const std::optional<TransformBasis>& basis = memory->basis();
    if (!basis) continue;
    const auto kept = static_cast<std::int64_t>(basis->bits.size());
    specs.push_back({prefix + "bits", Dtype::f32, {kept}});
    values.emplace_back(basis->bits.begin(), basis->bits.end());
    specs.push_back(
        {prefix + "directions", Dtype::f32, {static_cast<std::int64_t>(basis->columns), kept}});
    values.push_back(basis->directions);
  }
  if (specs.empty()) return;
  SafetensorsWriter writer(path + kSuffix, specs, {});
  for (const std::vector<float>& v : values) writer.write(as_bytes(std::span<const float>(v)));
  writer.commit();
}

void load_bases(BasisMemory& codec, BasisMemory& first, const std::string& path) {
  codec.forget();
  first.forget();
  if (!std::filesystem::exists(path + kSuffix)) return;
  const SafetensorsFile file(path + kSuffix);
  codec.restore(basis_in(file, "codec."));
  first.restore(basis_in(file, "first."));
}

}  // namespace laconic
