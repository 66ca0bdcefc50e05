#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

// op(codec) for the codecs that have a part, raw() for the one that has none.
template <class IfRaw, class Op>
auto visit_values(const ValueSpec& spec, const IfRaw& raw, const Op& op) {
  return std::visit(
      [&](const auto& codec) {
        if constexpr (std::is_same_v<std::decay_t<decltype(codec)>, Raw>)
          return raw();
        else
          return op(codec);
      },
      spec);
}

void check_raw(const TensorSpec& values, ByteView payload) {
  const std::size_t count = elements_of(values), size = bytes_of(values.dtype);
  if (payload.size() != count * size)
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}", payload.size(), count * size));
  const std::size_t odd = find_odd_nan(values.dtype, payload.data(), count);
  if (odd < count) throw WireError(size * odd, "payload.values", "not the NaN that is written");
}

// "payload.scale" of a payload within a payload is "payload.values.scale" of the outer one.
std::string moved(const std::string& field) {
  constexpr std::string_view kWhole = "payload", kValues = "payload.values";
  if (field == kWhole || field == kValues) return std::string(kValues);
  return std::string(kValues) + field.substr(field.starts_with(kWhole) ? kWhole.size() : 0);
}

// what() begins with the field and the offset, which become others.
WireError moved(const WireError& error, std::size_t base) {
  const std::string text = error.what();
  const std::string begin = fmt::format("{} at byte {}: ", error.field(), error.offset());
  return {base + error.offset(), moved(error.field()),
          text.starts_with(begin) ? text.substr(begin.size()) : text};
}

}  // namespace

std::uint64_t value_bytes(const ValueSpec& spec, const TensorSpec& values) {
  return std::visit([&](const auto& codec) { return max_payload_bytes(codec, values); }, spec);
}

std::size_t encode_values(const ValueSpec& spec, const TensorSpec& values, const float* x,
                          const CodecInput& input, std::byte* out) {
  return visit_values(
      spec,
      [&]() -> std::size_t {
        narrow_bytes(values.dtype, x, elements_of(values), out);
        return elements_of(values) * bytes_of(values.dtype);
      },
      [&](const auto& codec) { return encode(codec, values, x, input, out); });
}

void check_values(const ValueSpec& spec, const TensorSpec& values, ByteView payload,
                  std::size_t base) {
  try {
    visit_values(
        spec, [&] { check_raw(values, payload); },
        [&](const auto& codec) { check_payload(codec, values, payload); });
  } catch (const WireError& error) {
    throw moved(error, base);
  }
}

void decode_values(const ValueSpec& spec, const TensorSpec& values, ByteView payload,
                   const CodecInput& input, float* out) {
  visit_values(
      spec, [&] { widen_bytes(values.dtype, payload.data(), elements_of(values), out); },
      [&](const auto& codec) { decode(codec, values, payload, input, out); });
}

std::vector<Section> value_sections(const ValueSpec& spec, const TensorSpec& values,
                                    ByteView payload, std::size_t base) {
  std::vector<Section> all = visit_values(
      spec,
      [&]() -> std::vector<Section> {
        return {{"values", 0, payload.size(),
                 fmt::format("{} {}", elements_of(values), name_of(values.dtype))}};
      },
      [&](const auto& codec) { return sections(codec, values, payload); });
  for (Section& section : all) {
    section.offset += base;
    if (section.name != "values") section.name = "values." + section.name;
  }
  return all;
}

}  // namespace laconic::part
