// Each codec lists its parameters once, in fields(); measuring, writing, reading and naming them
// all walk that list.
#include "laconic/wire/parameter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// --- the parameters of each codec, in the order of the wire: visit(type, name, value). The type is
// a value of what is stored: u8, u32, i64 or f64.

constexpr std::uint8_t u8{};
constexpr std::uint32_t u32{};
constexpr std::int64_t i64{};
constexpr double f64{};

template <class Visit>
void fields(Raw&, Visit&) {}

template <class Visit>
void fields(Half& c, Visit& visit) {
  visit(u8, "half.kind", c.kind);
}

template <class Visit>
void fields(Quantise& c, Visit& visit) {
  visit(u8, "quantise.bits", c.bits);
  visit(u8, "quantise.group", c.group);
  visit(u8, "quantise.scale", c.scale);
  visit(u8, "quantise.rounding", c.rounding);
  visit(u8, "quantise.grid", c.grid);
  visit(u8, "quantise.rotate", c.rotate);
  visit(u32, "quantise.block", c.block);
}

template <class Visit>
void fields(Sign& c, Visit& visit) {
  visit(u32, "sign.block", c.block);
}

template <class Visit>
void fields(TopK& c, Visit& visit) {
  visit(f64, "top_k.keep", c.kept.fraction);
  visit(i64, "top_k.count", c.kept.count);
  visit.values("top_k.values", c.values);
}

template <class Visit>
void fields(RandomK& c, Visit& visit) {
  visit(f64, "random_k.keep", c.kept.fraction);
  visit(i64, "random_k.count", c.kept.count);
  visit(u8, "random_k.unbiased", c.unbiased);
  visit.values("random_k.values", c.values);
}

template <class Visit>
void fields(LowRank& c, Visit& visit) {
  visit(u32, "low_rank.rank", c.rank);
  visit(u8, "low_rank.factors", c.factors);
}

template <class Visit>
void fields(AutoEncoder& c, Visit& visit) {
  visit(u32, "auto_encoder.code", c.code);
  visit(u8, "auto_encoder.values", c.values);
}

template <class Visit>
void fields(Huffman& c, Visit& visit) {
  visit(u8, "huffman.kind", c.kind);
}

template <class Visit>
void fields(Transform& c, Visit& visit) {
  visit(u8, "transform.bits", c.bits);
  visit(u32, "transform.span", c.span);
  visit(u32, "transform.refresh", c.refresh);
  visit(u8, "transform.scale", c.scale);
}

template <class Visit>
void walk(CodecSpec& codec, Visit& visit) {
  std::visit([&](auto& c) { fields(c, visit); }, codec);
}

template <class Visit>
void walk_values(ValueSpec& values, Visit& visit) {
  std::visit([&](auto& v) { fields(v, visit); }, values);
}

std::uint8_t value_number(const ValueSpec& values) {
  return static_cast<std::uint8_t>(values.index() + 1);
}

// What a stored number may be before check() looks at the whole: an enum must not hold more.
template <class T>
struct Range {
  static constexpr std::uint64_t least = 0, most = ~std::uint64_t{0};
};
template <>
struct Range<bool> {
  static constexpr std::uint64_t least = 0, most = 1;
};
template <>
struct Range<Dtype> {
  static constexpr std::uint64_t least = 1, most = kDtypes;
};
template <>
struct Range<ScaleGroup> {
  static constexpr std::uint64_t least = 0, most = 2;
};
template <>
struct Range<ScaleType> {
  static constexpr std::uint64_t least = 0, most = 2;
};
template <>
struct Range<Rounding> {
  static constexpr std::uint64_t least = 0, most = 1;
};
template <>
struct Range<Grid> {
  static constexpr std::uint64_t least = 0, most = 3;
};

// --- the four walks

struct Measure {
  std::size_t bytes = 0;

  template <class Stored, class T>
  void operator()(Stored, const char*, T&) {
    bytes += sizeof(Stored);
  }
  void values(const char*, ValueSpec& values) {
    bytes += 1;
    walk_values(values, *this);
  }
};

struct Write {
  std::byte* out;

  template <class Stored, class T>
  void operator()(Stored, const char*, T& value) {
    const auto stored = static_cast<Stored>(value);
    std::memcpy(out, &stored, sizeof stored);
    out += sizeof stored;
  }
  void values(const char* name, ValueSpec& values) {
    std::uint8_t number = value_number(values);
    (*this)(u8, name, number);
    walk_values(values, *this);
  }
};

struct Read {
  ByteView bytes;
  const ParameterPlace& place;
  std::size_t at = 0;

  template <class Stored, class T>
  void operator()(Stored, const char* name, T& value) {
    if (bytes.size() - at < sizeof(Stored))
      throw WireError(place.count, "parameter bytes",
                      fmt::format("{} bytes end before {}", bytes.size(), name));
    const auto stored = get<Stored>(bytes, at);
    if constexpr (std::is_same_v<Stored, std::uint8_t>)
      if (stored < Range<T>::least || stored > Range<T>::most)
        throw WireError(
            place.start + at, name,
            fmt::format("{} is not in {} ... {}", stored, Range<T>::least, Range<T>::most));
    value = static_cast<T>(stored);
    at += sizeof stored;
  }

  void values(const char* name, ValueSpec& values) {
    const std::size_t offset = place.start + at;
    std::uint8_t number = 0;
    (*this)(u8, name, number);
    switch (number) {
      case 1: values = Raw{}; break;
      case 2: values = Half{}; break;
      case 3: values = Quantise{}; break;
      default:
        throw WireError(offset, name,
                        fmt::format("codec {} cannot carry values: only 1, 2 and 3 can", number));
    }
    walk_values(values, *this);
  }
};

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_enum_v<T>)
    return std::string(name_of(value));
  else
    return fmt::format("{}", value);
}

struct Name {
  std::vector<ParameterField> list;
  std::size_t at = 0;

  template <class Stored, class T>
  void operator()(Stored, const char* name, T& value) {
    list.push_back({name, at, sizeof(Stored), text_of(value)});
    at += sizeof(Stored);
  }
  void values(const char* name, ValueSpec& values) {
    const std::string codec =
        std::visit([](const auto& v) { return std::string(name_of(CodecSpec(v))); }, values);
    list.push_back({name, at++, 1, codec});
    walk_values(values, *this);
  }
};

template <std::size_t I = 0>
CodecSpec empty_codec(std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<CodecSpec>)
    if (index != I) return empty_codec<I + 1>(index);
  return CodecSpec(std::in_place_index<I>);
}

// The offset of the parameter that a problem is about; of the first one when it is about several.
std::size_t offset_of(const CodecSpec& codec, const std::string& name) {
  const auto list = parameter_fields(codec);
  const auto found = std::ranges::find(list, name, &ParameterField::name);
  return found == list.end() ? 0 : found->offset;
}

}  // namespace

std::uint8_t codec_number(const CodecSpec& codec) {
  return static_cast<std::uint8_t>(codec.index() + 1);
}

std::size_t parameter_bytes(const CodecSpec& codec) {
  CodecSpec copy = codec;
  Measure measure;
  walk(copy, measure);
  return measure.bytes;
}

void write_parameters(const CodecSpec& codec, std::span<std::byte> out) {
  LACONIC_ASSERT(out.size() >= parameter_bytes(codec), fmt::format("{} bytes", out.size()));
  CodecSpec copy = codec;
  Write write{out.data()};
  walk(copy, write);
}

CodecSpec read_parameters(std::uint8_t number, ByteView parameters, const ParameterPlace& place) {
  constexpr auto kCodecs = std::variant_size_v<CodecSpec>;
  if (number < 1 || number > kCodecs)
    throw WireError(place.number, "codec", fmt::format("{} is not in 1 ... {}", number, kCodecs));
  CodecSpec codec = empty_codec(number - 1u);
  Read read{parameters, place};
  walk(codec, read);
  if (read.at != parameters.size())
    throw WireError(place.count, "parameter bytes",
                    fmt::format("{} instead of {}", parameters.size(), read.at));
  if (const Problems problems = check(codec); !problems.empty())
    throw WireError(place.start + offset_of(codec, problems[0].where), problems[0].where,
                    problems[0].what);
  return codec;
}

std::vector<ParameterField> parameter_fields(const CodecSpec& codec) {
  CodecSpec copy = codec;
  Name name;
  walk(copy, name);
  return std::move(name.list);
}

}  // namespace laconic
