// codec/test_round_trip.hpp — for tests: tensors to payloads and back in one line.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/reference/reference.hpp"

namespace laconic::test {

// 0-D to 4-D, some of nothing.
inline const std::vector<std::vector<std::int64_t>> kShapes = {
    {}, {0}, {70}, {3, 0}, {9, 31}, {2, 3, 50}, {2, 3, 4, 25}};

inline constexpr Dtype kFloats[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f64};

// A tensor that owns its elements, made from f32 by rounding.
struct Tensor {
  TensorSpec spec;
  std::vector<double> storage;  // aligned for any dtype
  void* data() { return storage.data(); }
  ConstHostTensor view() const { return {spec, storage.data()}; }
};

inline Tensor tensor_of(Dtype dtype, std::vector<std::int64_t> shape, const std::vector<float>& x) {
  Tensor tensor{{dtype, std::move(shape)}, std::vector<double>(x.size() + 1)};
  narrow(dtype, x.data(), x.size(), tensor.data());
  return tensor;
}

inline Tensor vector_of(const std::vector<float>& x) {
  return tensor_of(Dtype::f32, {static_cast<std::int64_t>(x.size())}, x);
}

inline std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> x(elements_of(tensor.spec));
  widen(tensor.spec.dtype, tensor.storage.data(), x.size(), x.data());
  return x;
}

// Checks on the way that the size is as promised and that encoding twice gives the same bytes.
inline Bytes encoded(const CodecSpec& codec, const Tensor& x, const CodecInput& input = {}) {
  const std::uint64_t room = max_payload_bytes(codec, x.spec);
  Bytes payload(room), again(room);
  payload.resize(encode(codec, x.view(), input, payload));
  again.resize(encode(codec, x.view(), input, again));
  EXPECT_EQ(payload, again);
  EXPECT_LE(payload.size(), room);
  if (has_fixed_size(codec)) {
    EXPECT_EQ(payload.size(), room);
  }
  return payload;
}

inline Tensor decoded(const CodecSpec& codec, const TensorSpec& spec, ByteView payload,
                      const CodecInput& input = {}) {
  Tensor out{spec, std::vector<double>(elements_of(spec) + 1, -7.0)};
  decode(codec, payload, input, {out.spec, out.data()});
  return out;
}

inline Bytes bytes_of_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    put(bytes, static_cast<std::uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
    i += 2;
  }
  return bytes;
}

inline std::string hex_of(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes)
    text += fmt::format("{}{:02X}", text.empty() ? "" : " ", std::to_integer<int>(b));
  return text;
}

// Numbers as bits, so that NaN equals itself and -0 does not equal 0.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits;
  for (const float v : x) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

inline std::vector<float> normal_floats(std::size_t count, std::uint64_t seed = 1) {
  std::vector<float> x(count);
  fill_normal(key_of(seed), 0, 0.0, 1.0, std::span<float>(x));
  return x;
}

// Every tensor against the scalar reference: the same bytes, and the same numbers back.
template <class Codec>
void expect_like_reference(const Codec& codec, const Tensor& x, const CodecInput& input = {}) {
  SCOPED_TRACE(fmt::format("{} of {} [{}]", to_text(codec), name_of(x.spec.dtype),
                           fmt::join(x.spec.shape, ", ")));
  const ScopedDenormals flush(true);
  const Bytes payload = encoded(codec, x, input);
  ASSERT_EQ(hex_of(payload), hex_of(reference::encode(codec, x.spec, floats_of(x), input)));
  const std::vector<float> expected = reference::decode(codec, x.spec, payload, input);
  const Tensor back = decoded(codec, x.spec, payload, input);
  const Tensor rounded = tensor_of(x.spec.dtype, x.spec.shape, expected);
  EXPECT_EQ(bits_of(floats_of(back)), bits_of(floats_of(rounded)));
}

// "field@offset" of the refusal, or "accepted".
inline std::string refusal(const CodecSpec& codec, const TensorSpec& spec, ByteView payload) {
  try {
    check_payload(codec, spec, payload);
  } catch (const WireError& error) {
    return fmt::format("{}@{}", error.field(), error.offset());
  }
  return "accepted";
}

// Damages payloads at random: each is refused or decodes to something, and nothing else happens.
inline void expect_no_crash(const CodecSpec& codec, const Tensor& x, int trials,
                            const CodecInput& input = {}) {
  const Bytes good = encoded(codec, x, input);
  for (int trial = 0; trial < trials; ++trial) {
    const Key key = derive(key_of(77), static_cast<std::uint64_t>(trial));
    Bytes bad(good.begin(),
              good.end() - (trial % 7 == 0 ? word_at(key, 0) % (good.size() + 1) : 0));
    for (std::uint32_t i = 0; i < 1 + word_at(key, 1) % 3 && !bad.empty(); ++i)
      bad[word_at(key, 2 + 2 * i) % bad.size()] ^= static_cast<std::byte>(word_at(key, 3 + 2 * i));
    try {
      decoded(codec, x.spec, bad, input);
    } catch (const WireError&) {
    }
  }
}

// The sections of a payload follow each other without a gap, to its end.
inline void expect_sections_cover(const CodecSpec& codec, const Tensor& x) {
  const Bytes payload = encoded(codec, x);
  std::uint64_t end = 0;
  for (const Section& section : payload_sections(codec, x.spec, payload)) {
    EXPECT_EQ(section.offset, end);
    end += section.bytes;
  }
  EXPECT_EQ(end, payload.size());
}

}  // namespace laconic::test
