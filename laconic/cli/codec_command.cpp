// list and show: what codecs are, without a tensor.
#include "laconic/cli/codec_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/report/table.hpp"
#include "laconic/wire/frame.hpp"
#include "laconic/wire/parameter.hpp"

namespace laconic {

namespace {

// The problems of the text and of the codec for this tensor, all at once.
CodecSpec parse_for(const std::string& text, const TensorSpec& tensor) {
  CodecSpec codec;
  Problems problems;
  try {
    codec = parse_codec(text);
  } catch (const ConfigError& error) {
    problems = error.problems();  // and whether raw could carry such a tensor
  }
  append(problems, check(codec, tensor));
  refuse(problems);
  return codec;
}

// "quantise.bits" to what `codec list` says of it.
std::string help_of(const std::string& parameter) {
  const auto parts = split(parameter, '.');
  if (parts.size() != 2) return "";
  for (const CodecHelp& codec : codec_help()) {
    if (codec.name != parts[0]) continue;
    const auto found = std::ranges::find(codec.options, parts[1], &OptionHelp::name);
    if (found != codec.options.end()) return found->help;
  }
  return parts[1] == "values" ? "the codec of the kept values" : "";
}

std::string summary_of(const CodecSpec& codec) {
  const auto found = std::ranges::find(codec_help(), name_of(codec), &CodecHelp::name);
  return found == codec_help().end() ? "" : found->help;
}

// A codec and a tensor in numbers.
struct Cost {
  std::uint64_t elements = 0, raw_bytes = 0, payload_bytes = 0, overhead_bytes = 0;

  double bits() const { return 8.0 * static_cast<double>(payload_bytes) / count(); }
  double ratio_to_raw() const { return static_cast<double>(raw_bytes) / bytes(); }
  double ratio_to_half() const { return 2 * count() / bytes(); }
  double overhead_share() const {
    return static_cast<double>(overhead_bytes) /
           static_cast<double>(payload_bytes + overhead_bytes);
  }

 private:
  double count() const { return static_cast<double>(std::max<std::uint64_t>(elements, 1)); }
  double bytes() const { return static_cast<double>(std::max<std::uint64_t>(payload_bytes, 1)); }
};

Cost cost_of(const CodecSpec& codec, const TensorSpec& tensor) {
  const FrameHeader header{.codec = codec, .tensor = tensor};
  return {elements_of(tensor), elements_of(tensor) * bytes_of(tensor.dtype),
          max_payload_bytes(codec, tensor), header_bytes(header) + kFrameCrcBytes};
}

std::string describe(const CodecSpec& codec, const TensorSpec& tensor, const Cost& cost) {
  const char* at_most = has_fixed_size(codec) ? "" : "at most ";
  Table table({{"", Align::left}, {"", Align::left}, {"", Align::left}});
  const auto add = [&](std::string name, std::string value, std::string help) {
    table.add({std::move(name), std::move(value), std::move(help)});
  };
  add("codec", to_text(codec), summary_of(codec));
  for (const ParameterField& p : parameter_fields(codec))
    add("  " + p.name, p.meaning, help_of(p.name));
  add("tensor", fmt::format("[{}] {}", fmt::join(tensor.shape, ", "), name_of(tensor.dtype)),
      fmt::format("{} elements, {} bytes", commas(cost.elements), commas(cost.raw_bytes)));
  add("payload", fmt::format("{}{} bytes", at_most, commas(cost.payload_bytes)),
      has_fixed_size(codec) ? "exactly: it follows from codec and shape"
                            : "depends on where the kept elements are");
  add("bits an element", fmt::format("{}{:.4g}", at_most, cost.bits()), "");
  add("shorter than raw", fmt::format("{:.4g}x", cost.ratio_to_raw()), "");
  add("shorter than f16", fmt::format("{:.4g}x", cost.ratio_to_half()), "");
  add("exact", std::holds_alternative<Raw>(codec) ? "yes" : "no",
      "does every tensor come back as it was");
  add("summable", is_summable(codec) ? "yes" : "no", "can payloads be added without decoding");
  add("frame", fmt::format("{} bytes more", cost.overhead_bytes),
      fmt::format("header and check sum, {:.2g} % of the frame", 100 * cost.overhead_share()));
  return to_text(table);
}

nlohmann::ordered_json to_json(const CodecSpec& codec, const TensorSpec& tensor, const Cost& cost) {
  return {{"command", "codec show"},
          {"codec", to_text(codec)},
          {"dtype", std::string(name_of(tensor.dtype))},
          {"shape", tensor.shape},
          {"elements", cost.elements},
          {"raw_bytes", cost.raw_bytes},
          {"payload_bytes", cost.payload_bytes},
          {"is_fixed_size", has_fixed_size(codec)},
          {"bits_per_element", cost.bits()},
          {"ratio_to_raw", cost.ratio_to_raw()},
          {"ratio_to_f16", cost.ratio_to_half()},
          {"is_exact", std::holds_alternative<Raw>(codec)},
          {"is_summable", is_summable(codec)},
          {"frame_overhead_bytes", cost.overhead_bytes}};
}

// Table's first lines are its titles, which a table without titles does not need.
std::string without_titles(const std::string& text) {
  return text.substr(text.find('\n', text.find('\n') + 1) + 1);
}

}  // namespace

std::string commas(std::uint64_t value) {
  return with_commas(static_cast<std::int64_t>(value));
}

int run_codec(const CodecListCommand&) {
  Table table({{"codec", Align::left},
               {"option", Align::left},
               {"default", Align::left},
               {"values", Align::left},
               {"", Align::left}});
  for (const CodecHelp& codec : codec_help()) {
    table.add({codec.name, "", "", "", codec.help});
    for (const OptionHelp& o : codec.options) table.add({"", o.name, o.fallback, o.values, o.help});
  }
  fmt::print("{}\nA codec is written NAME:OPTION=VALUE,...; for numbers: laconic codec show SPEC\n",
             to_text(table));
  return 0;
}

int run_codec(const CodecShowCommand& command) {
  const TensorSpec tensor{*dtype_named(command.dtype), command.shape};
  const CodecSpec codec = parse_for(command.codec, tensor);
  const Cost cost = cost_of(codec, tensor);
  fmt::print("{}", without_titles(describe(codec, tensor, cost)));
  if (!command.json.empty())
    write_atomically(command.json, to_json(codec, tensor, cost).dump(2) + "\n");
  return 0;
}

}  // namespace laconic
