// tests/golden/golden_frame.hpp — the frames in wire/, and how to make them.
//
// The hex is the contract: it was written once, checked against docs/wire-format.md, and a change
// of it changes the version of the format. Nothing writes into this folder: with LACONIC_REGENERATE
// set to a folder elsewhere the test leaves there what it would have expected, to be looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

struct GoldenFrame {
  const char* name;   // of the file, for what it proves
  const char* codec;  // as text
  TensorSpec tensor;
  std::vector<float> data;     // row-major, converted to the tensor's dtype
  std::vector<float> decoded;  // what it comes back as; empty: as it was
  const char* hex;             // of the whole frame; blanks are for the reader
  std::uint64_t seed = 0;
  Visit visit = Visit::alone;
  std::uint32_t visits = 0;
  std::uint64_t key = 0;
  std::optional<std::uint64_t> hash = {};
};

const std::vector<GoldenFrame>& golden_frames();

Bytes make_frame(const GoldenFrame& golden);          // by our encoder
std::vector<float> decode_frame(const Frame& frame);  // by our decoder, as f32
std::string hex_of(ByteView bytes);                   // two digits each, without blanks
Bytes bytes_of_hex(std::string_view hex);             // passes over blanks

// A frame of wire/ with a few bytes replaced, and the check sum mended or not.
struct InvalidFrame {
  const char* name;
  const char* base;  // name of a golden frame
  std::size_t at;
  const char* hex;  // the new bytes
  bool is_mended;   // the check sum fits
};

const std::vector<InvalidFrame>& invalid_frames();
Bytes make_frame(const InvalidFrame& invalid);

}  // namespace laconic
