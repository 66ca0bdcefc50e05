#include "laconic/file/safetensors_json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

enum class Place { outside, root, tensor, shape, offsets, metadata };

// Receives the events of nlohmann::json::sax_parse; the member names are its own. Where we are is
// `place_`, below which key is `name_` (of the root) and `key_` (of a tensor). Whatever the format
// does not have at that place is refused, so nothing nests deeper than three.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool binary(const nlohmann::json::binary_t&) { return unexpected("binary data"); }
  bool number_float(double, const std::string& text) { return unexpected(text); }
  bool number_integer(std::int64_t value) { return unexpected(fmt::format("{}", value)); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::shape) return add_size(value);
    if (place_ == Place::offsets) return add_offset(value);
    return unexpected(fmt::format("{}", value));
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("a text");
    const auto dtype = parse_dtype(value);
    if (!dtype)
      refuse(fmt::format("dtype '{}' is not known", printable(value)),
             "use F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL");
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) {
      place_ = Place::root;
    } else if (place_ == Place::root) {
      place_ = name_ == kSafetensorsMetadataKey ? Place::metadata : Place::tensor;
      entry_ = {.name = name_};
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(std::string& text) {
    switch (place_) {
      case Place::root: return start_entry(text);
      case Place::tensor: return start_field(text);
      default: key_ = std::move(text);
    }
    if (header_.metadata.contains(key_))
      refuse(fmt::format("key '{}' is there twice", printable(key_)));
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) finish_entry();
    place_ = place_ == Place::root ? Place::outside : Place::root;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::tensor || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offset_count_ = 0;
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offset_count_ != 2)
      refuse(fmt::format("data_offsets has {} numbers, not 2", offset_count_));
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const std::exception&) {
    throw FileError(path_, "header", fmt::format("is not JSON at byte {}", position), kRemedy);
  }

 private:
  static constexpr const char* kRemedy = "the file is damaged; fetch it or write it again";

  [[noreturn]] void refuse(const std::string& what, const char* remedy = kRemedy) const {
    throw FileError(path_, name_.empty() ? "header" : printable(name_), what, remedy);
  }

  bool unexpected(std::string_view value) const {
    refuse(fmt::format("{} holds {}, which does not belong there",
                       place_ == Place::root || key_.empty() ? "the header" : printable(key_),
                       printable(value)));
  }

  bool start_entry(std::string& text) {
    name_ = std::move(text);
    key_.clear();
    if (name_ == kSafetensorsMetadataKey && std::exchange(has_metadata_, true))
      refuse("is there twice");
    return true;
  }

  bool start_field(std::string& text) {
    key_ = std::move(text);
    bool* seen = key_ == "dtype"          ? &has_dtype_
                 : key_ == "shape"        ? &has_shape_
                 : key_ == "data_offsets" ? &has_offsets_
                                          : nullptr;
    if (seen == nullptr) refuse(fmt::format("unknown key '{}'", printable(key_)));
    if (std::exchange(*seen, true)) refuse(fmt::format("key '{}' is there twice", key_));
    return true;
  }

  bool add_size(std::uint64_t value) {
    if (value > std::numeric_limits<std::int64_t>::max())
      refuse(fmt::format("shape holds {}, which is too large", value));
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    (offset_count_ == 0 ? entry_.begin : entry_.end) = value;
    ++offset_count_;
    return true;
  }

  void finish_entry() {
    const char* missing = !has_dtype_     ? "dtype"
                          : !has_shape_   ? "shape"
                          : !has_offsets_ ? "data_offsets"
                                          : nullptr;
    if (missing != nullptr) refuse(fmt::format("has no {}", missing));
    header_.entries.push_back(std::move(entry_));
  }

  const std::string& path_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::string name_;
  std::string key_;
  SafetensorsEntry entry_;
  std::size_t offset_count_ = 0;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& path) {
  HeaderReader reader(path);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace laconic
