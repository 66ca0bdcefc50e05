// codec/test_quantise.hpp — for tests of the quantise codec: short ways to call it, and data.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"

namespace laconic {

using Floats = std::vector<float>;

inline Bytes encoded(const Quantise& codec, const TensorSpec& tensor, const Floats& x,
                     std::uint64_t seed = 1) {
  Bytes out(max_payload_bytes(codec, tensor));
  CodecInput input;
  input.seed = seed;
  out.resize(encode(codec, {tensor, x.data()}, input, out));
  return out;
}

inline Floats decoded(const Quantise& codec, const TensorSpec& tensor, ByteView payload) {
  Floats out(elements_of(tensor));
  decode(codec, payload, {}, {tensor, out.data()});
  return out;
}

inline Floats passed(const Quantise& codec, const TensorSpec& tensor, const Floats& x,
                     std::uint64_t seed = 1) {
  return decoded(codec, tensor, encoded(codec, tensor, x, seed));
}

inline TensorSpec vector_of(std::size_t size) {
  return {Dtype::f32, {static_cast<std::int64_t>(size)}};
}

inline Floats normal_data(std::size_t size, double deviation = 1, std::uint64_t seed = 7) {
  Floats x(size);
  fill_normal(key_of(seed), 0, 0, deviation, x);
  return x;
}

// What EXPECT_EQ should compare: -0 is not 0, and a NaN equals itself.
inline std::vector<std::uint32_t> bits_of(const Floats& x) {
  std::vector<std::uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

inline std::vector<std::uint32_t> bits_with_one_nan(Floats x) {
  for (float& value : x)
    if (value != value) value = std::bit_cast<float>(0x7FC00000u);
  return bits_of(x);
}

inline std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    if (!text.empty()) text += ' ';
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

inline Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 3)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace laconic
