// wire/parameter.hpp — the options of a codec as the bytes of a frame, and back.
//
// The bytes are those of the table "Codecs and their parameters" in
// docs/wire-format.md, which lists fewer things than a codec's text: what a text
// leaves out because it is the default is always on the wire. Offsets in
// messages count from wherever the caller says the parameters begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

// 1 ... 8: raw is 1. The inverse is read_parameters().
std::uint8_t codec_number(const CodecSpec& codec);

std::size_t parameter_bytes(const CodecSpec& codec);  // at most 29
// Requires: check(codec) is empty; out holds parameter_bytes().
void write_parameters(const CodecSpec& codec, std::span<std::byte> out);

// Where the three parts of a codec lie in a message, for messages.
struct ParameterPlace {
  std::size_t number = 0;  // offset of the codec's number
  std::size_t count = 0;   // offset of the number of parameter bytes
  std::size_t start = 0;   // offset of the first parameter
};
// A codec that passes check(). Throws WireError whose field is "codec", "parameter bytes" or an
// option, "quantise.bits".
CodecSpec read_parameters(std::uint8_t number, ByteView parameters, const ParameterPlace& place);

// What each byte of the parameters is, in order, without gaps.
struct ParameterField {
  std::string name;  // "quantise.bits"
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::string meaning;  // "4"
};
std::vector<ParameterField> parameter_fields(const CodecSpec& codec);

}  // namespace laconic
