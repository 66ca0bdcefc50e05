#include "laconic/link/feedback.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"

namespace laconic {

namespace {

std::size_t count_of(const Feedback::Shape& shape) {
  return elements_of(TensorSpec{Dtype::f32, shape});
}

ByteView bytes_of_floats(const std::vector<float>& values) {
  return as_bytes(std::span<const float>(values));
}

std::vector<float> finite_floats(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (entry.dtype != Dtype::f32) throw FileError(file.path(), entry.name, "is not f32");
  const ByteView bytes = file.bytes(entry);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  if (!is_finite(values.data(), values.size()))
    throw FileError(file.path(), entry.name, "has numbers that are not finite");
  return values;
}

template <class T>
T whole_number(const std::string& text, const std::string& path, const std::string& field) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw FileError(path, printable(field),
                    fmt::format("'{}' is not a whole number", printable(text)));
  return value;
}

Feedback::Shape shape_of(const std::string& text, const std::string& path,
                         const std::string& field) {
  Feedback::Shape shape;
  if (!text.empty())
    for (const std::string& size : split(text, ','))
      shape.push_back(whole_number<std::int64_t>(size, path, field));
  return shape;
}

}  // namespace

Feedback::Attempt Feedback::attempt(std::uint64_t slot, const Shape& shape, bool with_residual) {
  Slot& at = slots_[slot];
  const Values& newest = at.newest();
  const bool fits = newest.shape == shape;
  const bool has_residual = fits && !newest.residual.empty();
  Values& next = at.attempted;
  next.shape = shape;
  next.basis = fits ? newest.basis : std::vector<float>();
  if (!with_residual) {
    next.residual.clear();
    return {nullptr, nullptr, &next.basis};
  }
  if (has_residual)
    next.residual.resize(count_of(shape));
  else
    next.residual.assign(count_of(shape), 0.0F);
  return {has_residual ? newest.residual.data() : next.residual.data(), next.residual.data(),
          &next.basis};
}

void Feedback::accept(std::uint64_t slot) {
  Slot& at = slots_.at(slot);
  std::swap(at.open, at.attempted);  // what was open becomes room for the next attempt
  at.is_open = true;
}

void Feedback::commit() {
  for (auto& [slot, at] : slots_)
    if (std::exchange(at.is_open, false)) std::swap(at.committed, at.open);
}

void Feedback::abandon() {
  for (auto& [slot, at] : slots_) at.is_open = false;
}

void Feedback::drop_residuals() {
  for (auto& [slot, at] : slots_) at.committed.residual.clear();
}

void Feedback::drop_bases() {
  for (auto& [slot, at] : slots_) at.committed.basis.clear();
}

void Feedback::rescale(float factor) {
  for (auto& [slot, at] : slots_) {
    std::vector<float>& residual = at.committed.residual;
    for (float& value : residual) value *= factor;
    // An infinite residual would spoil this message and be kept for the next, for ever.
    if (!is_finite(residual.data(), residual.size())) residual.clear();
  }
}

bool Feedback::has_open() const {
  return std::ranges::any_of(slots_, [](const auto& slot) { return slot.second.is_open; });
}

double Feedback::norm(std::uint64_t slot) const {
  const auto at = slots_.find(slot);
  if (at == slots_.end()) return 0;
  double sum = 0;
  for (const float value : at->second.newest().residual) sum += double{value} * value;
  return std::sqrt(sum);
}

std::span<const float> Feedback::residual(std::uint64_t slot) const {
  const auto at = slots_.find(slot);
  if (at == slots_.end()) return {};
  return at->second.newest().residual;
}

void Feedback::set_residual(std::uint64_t slot, const Shape& shape, std::span<const float> values) {
  LACONIC_ASSERT(values.empty() || values.size() == count_of(shape),
                 fmt::format("{} values for {} elements", values.size(), count_of(shape)));
  Values& committed = slots_[slot].committed;
  committed.shape = shape;
  committed.residual.clear();
  if (is_finite(values.data(), values.size()))
    committed.residual.assign(values.begin(), values.end());
}

// Two tensors for each slot, "SLOT.residual" with the shape of its messages and "SLOT.basis".
void Feedback::save(const std::string& path) const {
  std::vector<SafetensorsSpec> specs;
  std::vector<const std::vector<float>*> values;
  for (const auto& [slot, at] : slots_) {
    if (!at.committed.residual.empty()) {
      specs.push_back({fmt::format("{}.residual", slot), Dtype::f32, at.committed.shape});
      values.push_back(&at.committed.residual);
    }
    if (!at.committed.basis.empty()) {
      specs.push_back({fmt::format("{}.basis", slot),
                       Dtype::f32,
                       {static_cast<std::int64_t>(at.committed.basis.size())}});
      values.push_back(&at.committed.basis);
    }
  }
  SafetensorsMetadata shapes;  // a warm start alone does not tell the shape of its messages
  for (const auto& [slot, at] : slots_)
    if (!at.committed.residual.empty() || !at.committed.basis.empty())
      shapes[fmt::format("{}.shape", slot)] = fmt::format("{}", fmt::join(at.committed.shape, ","));
  SafetensorsWriter writer(path, specs, shapes);
  for (const auto* value : values) writer.write(bytes_of_floats(*value));
  writer.commit();
}

void Feedback::load(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<std::uint64_t, Slot> loaded;
  std::size_t used = 0;
  for (const auto& [name, text] : file.metadata()) {
    const std::string stem = split(name, '.')[0];
    if (name != stem + ".shape")
      throw FileError(path, printable(name), "is not the shape of a slot");
    Values& values = loaded[whole_number<std::uint64_t>(stem, path, name)].committed;
    values.shape = shape_of(text, path, name);
    if (const auto* entry = file.find(stem + ".residual")) {
      if (entry->shape != values.shape)
        throw FileError(path, entry->name, fmt::format("is not f32 [{}]", text));
      values.residual = finite_floats(file, *entry);
      ++used;
    }
    if (const auto* entry = file.find(stem + ".basis")) {
      values.basis = finite_floats(file, *entry);
      ++used;
    }
  }
  if (used != file.entries().size())
    throw FileError(path, "",
                    fmt::format("{} of {} tensors are of no slot: this is not the state "
                                "of a link",
                                file.entries().size() - used, file.entries().size()));
  slots_ = std::move(loaded);
}

}  // namespace laconic
