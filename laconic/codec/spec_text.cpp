// Codec specs as text. Each codec lists its options once, in options(); printing, parsing and help
// all walk that list.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

namespace {

template <class E>
struct Names;
template <>
struct Names<ScaleGroup> {
  static constexpr std::array<std::string_view, 3> kAll = {"block", "row", "channel"};
};
template <>
struct Names<ScaleType> {
  static constexpr std::array<std::string_view, 3> kAll = {"f32", "f16", "pow2"};
};
template <>
struct Names<Rounding> {
  static constexpr std::array<std::string_view, 2> kAll = {"nearest", "stochastic"};
};
template <>
struct Names<Grid> {
  static constexpr std::array<std::string_view, 4> kAll = {"tread", "ends", "artefact", "powers"};
};

// --- the options of each codec: visit(name, value, help).

template <class Visit>
void options(Raw&, const Visit&) {}

template <class Visit>
void options(Half& c, const Visit& visit) {
  visit("kind", c.kind, "bf16 (wide range) or f16 (more digits, infinite above 65504)");
}

template <class Visit>
void options(Quantise& c, const Visit& visit) {
  visit("bits", c.bits, "1 ... 8 for each element");
  visit("group", c.group, "which elements share a scale");
  visit("block", c.block, "elements that share a scale, when groups are blocks");
  visit("scale", c.scale, "how a scale is stored: 4, 2 or 1 bytes");
  visit("rounding", c.rounding, "stochastic is unbiased (needs grid=ends) but noisier");
  visit("grid", c.grid,
        "where the levels lie; artefact is the published AC-SGD code, powers has powers of two");
  visit("rotate", c.rotate, "random signs and a Hadamard transform first: spreads outliers");
}

template <class Visit>
void options(Sign& c, const Visit& visit) {
  visit("block", c.block, "elements that share a scale");
}

template <class Visit>
void options(Kept& c, const Visit& visit) {
  visit("keep", c.fraction, "the fraction of elements that is kept");
  visit("count", c.count, "or their number; 0: by fraction");
}

template <class Visit>
void options(TopK& c, const Visit& visit) {
  options(c.kept, visit);
}

template <class Visit>
void options(RandomK& c, const Visit& visit) {
  options(c.kept, visit);
  visit("unbiased", c.unbiased, "multiply by n / k, so that the mean is right");
}

template <class Visit>
void options(LowRank& c, const Visit& visit) {
  visit("rank", c.rank, "columns of the two factors");
  visit("factors", c.factors, "f32, f16 or bf16 on the wire");
}

template <class Visit>
void options(AutoEncoder& c, const Visit& visit) {
  visit("code", c.code, "numbers that stand for a row");
  visit("values", c.values, "f32, f16 or bf16 on the wire");
}

template <class Visit>
void options(Transform& c, const Visit& visit) {
  visit("bits", c.bits, "1 ... 8: the error of so many for every element");
  visit("span", c.span, "rows of a direction that share a scale");
  visit("refresh", c.refresh, "steps between messages that a new basis is made of");
  visit("scale", c.scale, "how a scale is stored: 4, 2 or 1 bytes");
}

template <class Visit>
void options(Huffman& c, const Visit& visit) {
  visit("kind", c.kind, "what numbers are rounded to first; f32: nothing is lost");
}

// --- single values

std::string print(bool value) {
  return value ? "true" : "false";
}
std::string print(double value) {
  return fmt::format("{}", value);
}
std::string print(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string print(int value) {
  return fmt::format("{}", value);
}
template <class E>
requires std::is_enum_v<E> std::string print(E value) {
  return std::string(name_of(value));
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool read(std::string_view text, int& value) {
  const auto parsed = number<int>(text);
  return parsed && (value = *parsed, true);
}
bool read(std::string_view text, std::int64_t& value) {
  const auto parsed = number<std::int64_t>(text);
  return parsed && (value = *parsed, true);
}
bool read(std::string_view text, double& value) {
  const auto parsed = number<double>(text);
  return parsed && (value = *parsed, true);
}
bool read(std::string_view text, bool& value) {
  if (text != "true" && text != "false") return false;
  value = text == "true";
  return true;
}
bool read(std::string_view text, Dtype& value) {
  const auto parsed = dtype_named(text);
  return parsed && (value = *parsed, true);
}
template <class E>
requires std::is_enum_v<E>
bool read(std::string_view text, E& value) {
  const auto& names = Names<E>::kAll;
  const auto at = std::find(names.begin(), names.end(), text);
  if (at == names.end()) return false;
  value = static_cast<E>(at - names.begin());
  return true;
}

std::string expected(const Dtype&) {
  return "f32, f16 or bf16";
}
std::string expected(const bool&) {
  return "true or false";
}
std::string expected(const double&) {
  return "a number";
}
std::string expected(const std::int64_t&) {
  return "a whole number";
}
std::string expected(const int&) {
  return "a whole number";
}
template <class E>
requires std::is_enum_v<E> std::string expected(const E&) {
  return fmt::format("{}", fmt::join(Names<E>::kAll, ", "));
}

// half has no f32; the other codecs with floats on the wire do.
template <class Codec, class T>
std::string expected_by(const T& value) {
  if constexpr (std::is_same_v<Codec, Half>) return "f16 or bf16";
  return expected(value);
}

// --- printing

template <class Codec>
std::string print_one(Codec codec) {
  // Rows and channels have no block, so its absence there is nothing to tell.
  Codec fallback;
  if constexpr (std::is_same_v<Codec, Quantise>)
    if (codec.group != ScaleGroup::block) fallback.block = 0;
  std::map<std::string, std::string> defaults;
  options(fallback,
          [&](const char* name, auto& value, const char*) { defaults[name] = print(value); });
  std::vector<std::string> parts;
  options(codec, [&](const char* name, auto& value, const char*) {
    if (print(value) != defaults[name]) parts.push_back(fmt::format("{}={}", name, print(value)));
  });
  const std::string head(name_of(CodecSpec(codec)));
  return parts.empty() ? head : head + ":" + join(parts, ",");
}

// --- parsing

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const CodecHelp& help : codec_help()) names.push_back(help.name);
  return names;
}

template <class Codec>
Codec parse_options(std::string_view head, std::string_view text, Problems& problems) {
  Codec codec;
  std::map<std::string, std::string, std::less<>> given;
  if (!text.empty())
    for (const std::string& part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      const std::string name(trim(std::string_view(part).substr(0, equals)));
      const std::string value(
          equals == std::string::npos ? "" : trim(std::string_view(part).substr(equals + 1)));
      if (equals == std::string::npos)
        problems.push_back(
            {std::string(head), fmt::format("'{}' is not option=value", printable(part))});
      else if (!given.emplace(name, value).second)
        problems.push_back({std::string(head), fmt::format("{} is given twice", printable(name))});
    }
  if constexpr (std::is_same_v<Codec, Quantise>)
    if (const auto group = given.find("group");
        group != given.end() && group->second != "block" && !given.contains("block"))
      codec.block = 0;
  std::vector<std::string> known;
  options(codec, [&](const char* name, auto& value, const char*) {
    known.emplace_back(name);
    const auto at = given.find(name);
    if (at == given.end()) return;
    if (!read(at->second, value))
      problems.push_back(
          {fmt::format("{}.{}", head, name),
           fmt::format("'{}' is not {}", printable(at->second), expected_by<Codec>(value))});
    given.erase(at);
  });
  for (const auto& [name, value] : given) {
    const std::string near = nearest(name, known);
    problems.push_back({std::string(head),
                        fmt::format("no option '{}'{}", printable(name),
                                    near.empty() ? known.empty() ? "; it has none"
                                                                 : "; it has " + join(known, ", ")
                                                 : "; did you mean " + near + "?")});
  }
  return codec;
}

template <std::size_t I = 0>
std::optional<CodecSpec> parse_one(std::string_view text, Problems& problems) {
  const std::size_t colon = text.find(':');
  const std::string_view head = trim(text.substr(0, colon));
  const std::string_view rest = colon == std::string_view::npos ? "" : trim(text.substr(colon + 1));
  if constexpr (I < std::variant_size_v<CodecSpec>) {
    using Codec = std::variant_alternative_t<I, CodecSpec>;
    if (head == name_of(CodecSpec(std::in_place_index<I>)))
      return CodecSpec(parse_options<Codec>(head, rest, problems));
    return parse_one<I + 1>(text, problems);
  } else {
    const std::string near = nearest(head, codec_names());
    problems.push_back({"codec", fmt::format("no codec '{}'; {}", printable(head),
                                             near.empty() ? "there are " + join(codec_names(), ", ")
                                                          : "did you mean " + near + "?")});
    return std::nullopt;
  }
}

// Puts `values` into a sparse codec.
void set_values(CodecSpec& codec, const CodecSpec& values, Problems& problems) {
  ValueSpec spec;
  if (const auto* c = std::get_if<Raw>(&values))
    spec = *c;
  else if (const auto* c = std::get_if<Half>(&values))
    spec = *c;
  else if (const auto* c = std::get_if<Quantise>(&values))
    spec = *c;
  else
    problems.push_back({"codec", fmt::format("kept values can be raw, half or quantise, not {}",
                                             name_of(values))});
  if (auto* c = std::get_if<TopK>(&codec))
    c->values = spec;
  else if (auto* c = std::get_if<RandomK>(&codec))
    c->values = spec;
  else
    problems.push_back({"codec", fmt::format("{} keeps all values: only top_k and random_k can be "
                                             "joined to another codec by '+'",
                                             name_of(codec))});
}

template <std::size_t I = 0>
void add_help(std::vector<CodecHelp>& all) {
  constexpr std::string_view kHelp[] = {
      "the bytes of the tensor itself; any dtype",
      "16-bit floats",
      "1 to 8 bits an element, with scales",
      "one bit an element, with scales",
      "the elements of largest magnitude; join values: top_k:keep=0.01+quantise:bits=4",
      "elements chosen by a seed, no indices; summable; joins values as top_k does",
      "two thin factors of the tensor as a matrix",
      "a learned linear map of every row; summable",
      "16- or 32-bit floats with fewer bits for the exponent, by how often each occurs",
      "rows in directions that both ends learn, with bits by the energy of each"};
  static_assert(std::size(kHelp) == std::variant_size_v<CodecSpec>);
  if constexpr (I < std::variant_size_v<CodecSpec>) {
    std::variant_alternative_t<I, CodecSpec> codec;
    CodecHelp help{std::string(name_of(CodecSpec(codec))), std::string(kHelp[I]), {}};
    options(codec, [&](const char* name, auto& value, const char* text) {
      help.options.push_back({name, expected_by<decltype(codec)>(value), print(value), text});
    });
    all.push_back(std::move(help));
    add_help<I + 1>(all);
  }
}

}  // namespace

std::string_view name_of(ScaleGroup group) {
  return Names<ScaleGroup>::kAll[static_cast<std::size_t>(group)];
}
std::string_view name_of(ScaleType scale) {
  return Names<ScaleType>::kAll[static_cast<std::size_t>(scale)];
}
std::string_view name_of(Rounding rounding) {
  return Names<Rounding>::kAll[static_cast<std::size_t>(rounding)];
}
std::string_view name_of(Grid grid) {
  return Names<Grid>::kAll[static_cast<std::size_t>(grid)];
}

std::string to_text(const CodecSpec& codec) {
  const std::string head = std::visit([](const auto& c) { return print_one(c); }, codec);
  const ValueSpec* values = nullptr;
  if (const auto* c = std::get_if<TopK>(&codec)) values = &c->values;
  if (const auto* c = std::get_if<RandomK>(&codec)) values = &c->values;
  if (values == nullptr || std::holds_alternative<Raw>(*values)) return head;
  return head + "+" + std::visit([](const auto& v) { return print_one(v); }, *values);
}

CodecSpec parse_codec(std::string_view text) {
  Problems problems;
  const std::vector<std::string> parts = split(text, '+');
  auto codec = parse_one(parts.empty() ? std::string_view() : parts[0], problems);
  if (parts.size() > 2)
    problems.push_back({"codec", fmt::format("{} codecs joined by '+'; at most 2", parts.size())});
  if (parts.size() == 2) {
    const auto values = parse_one(parts[1], problems);
    if (codec && values) set_values(*codec, *values, problems);
  }
  if (codec)  // what could be read is checked beside what could not
    append(problems, check(*codec));
  refuse(problems);
  return *codec;
}

const std::vector<CodecHelp>& codec_help() {
  static const std::vector<CodecHelp> all = [] {
    std::vector<CodecHelp> made;
    add_help(made);
    return made;
  }();
  return all;
}

}  // namespace laconic
