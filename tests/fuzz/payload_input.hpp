// tests/fuzz/payload_input.hpp — what the bytes of a payload seed say: a codec, a tensor, and a
// payload or how one is made. payload_fuzz.cpp tries it on the host's codecs, and
// tests/device/device_fuzz_test.cpp on those of a device as well.
//
// The first byte chooses codec and shape, the second what the rest is: a payload; or a tensor,
// which is encoded; or a tensor and changes to its payload.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "laconic/codec/codec.hpp"
#include "laconic/codec/transform_basis.hpp"

namespace laconic::fuzz {

struct PayloadCase {
  const char* codec;
  TensorSpec tensor;
};

// The number of a case is in the seeds: append only.
inline const PayloadCase kPayloadCases[] = {
    {"raw", {Dtype::f32, {5}}},
    {"raw", {Dtype::i64, {2, 3}}},
    {"half", {Dtype::f32, {2, 5}}},
    {"half:kind=f16", {Dtype::f64, {7}}},
    {"quantise", {Dtype::f32, {9}}},
    {"quantise:bits=4,block=8", {Dtype::bf16, {3, 7}}},
    {"quantise:bits=3,group=row,scale=f16", {Dtype::f32, {4, 5}}},
    {"quantise:bits=2,group=channel,scale=f16,grid=artefact", {Dtype::f32, {5, 4}}},
    {"quantise:bits=1,block=8,grid=ends", {Dtype::f16, {19}}},
    {"quantise:bits=5,block=16,scale=pow2", {Dtype::f32, {33}}},
    {"quantise:bits=4,block=8,rounding=stochastic,grid=ends,rotate=true", {Dtype::f32, {29}}},
    {"quantise:bits=7,block=16,rotate=true", {Dtype::f32, {2, 16}}},
    {"quantise:bits=6,group=channel", {Dtype::f32, {3, 0}}},
    {"quantise:bits=8,group=row,scale=pow2,grid=ends", {Dtype::f64, {}}},
    {"sign", {Dtype::f32, {31}}},
    {"sign:block=8", {Dtype::bf16, {3, 6}}},
    {"top_k:keep=0.1", {Dtype::f32, {40}}},
    {"top_k:count=3", {Dtype::f32, {300}}},
    {"top_k:keep=0.9", {Dtype::f16, {10}}},
    {"top_k:keep=1", {Dtype::f64, {4}}},
    {"top_k:count=2", {Dtype::f32, {0}}},
    {"top_k:count=4+half", {Dtype::f32, {5, 9}}},
    {"top_k:count=9+quantise:bits=3,block=4", {Dtype::f32, {1000}}},
    {"random_k:keep=0.2", {Dtype::f32, {41}}},
    {"random_k:keep=0.8,unbiased=true", {Dtype::bf16, {13}}},
    {"random_k:count=5+quantise:bits=2,block=2", {Dtype::f64, {50}}},
    {"low_rank:rank=2", {Dtype::f32, {5, 4}}},
    {"low_rank:rank=9,factors=f16", {Dtype::f32, {3, 2, 2}}},
    {"low_rank:rank=1,factors=bf16", {Dtype::bf16, {6}}},
    {"auto_encoder:code=2", {Dtype::f32, {3, 4}}},
    {"auto_encoder:code=3,values=f16", {Dtype::f16, {2, 3}}},
    {"huffman", {Dtype::f32, {40}}},
    {"huffman:kind=f16", {Dtype::f16, {5, 9}}},
    {"huffman:kind=f32", {Dtype::f64, {70}}},
    {"transform", {Dtype::f32, {6, 4}}},
    {"transform:bits=4,span=8,scale=f16", {Dtype::f32, {28, 5}}},
    {"quantise:bits=4,block=16,grid=powers", {Dtype::f32, {35}}},
};

inline const CodecSpec& codec_of(std::size_t i) {
  static const std::vector<CodecSpec> all = [] {
    std::vector<CodecSpec> codecs;
    for (const PayloadCase& c : kPayloadCases) codecs.push_back(parse_codec(c.codec));
    return codecs;
  }();
  return all[i];
}

inline constexpr std::array<float, 16> kMap = {1, 0.5f, -1, 0, 2, 0.25f, -0.5f, 1,
                                               0, 1,    3,  1, 0, -1,    1,     0.125f};

// Of five columns, in 4, 2 and 1 bits.
inline const TransformBasis& basis() {
  static const TransformBasis fixed = [] {
    TransformBasis b{.columns = 5, .bits = {4, 2, 1}, .directions = std::vector<float>(15)};
    for (std::size_t i = 0; i < 3; ++i) b.directions[i * 3 + i] = 1;
    b.hash = hash_of(b);
    return b;
  }();
  return fixed;
}

inline CodecInput input_of(std::uint8_t seed) {
  CodecInput input;
  input.transform = &basis();
  input.seed = seed;
  input.maps = {kMap.data(), kMap.data()};
  return input;
}

// As many bytes as the tensor has, repeated where the input is shorter.
inline Bytes tensor_of(const TensorSpec& tensor, ByteView data) {
  Bytes x(elements_of(tensor) * bytes_of(tensor.dtype), std::byte{0});
  for (std::size_t i = 0; i < x.size() && !data.empty(); ++i) x[i] = data[i % data.size()];
  return x;
}

inline Bytes encoded(const CodecSpec& codec, const TensorSpec& tensor, ByteView x,
                     std::uint8_t seed) {
  Bytes payload(max_payload_bytes(codec, tensor));
  payload.resize(encode(codec, {tensor, x.data()}, input_of(seed), payload));
  return payload;
}

// Pairs of the input are a place and what is changed there.
inline void change(Bytes& payload, ByteView data) {
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(data.size(), 6) && !payload.empty(); i += 2)
    payload[std::to_integer<std::size_t>(data[i]) % payload.size()] ^= data[i + 1];
}

enum class PayloadKind : std::uint8_t { payload, tensor, change };

// Requires: two bytes at least.
struct PayloadInput {
  explicit PayloadInput(ByteView data)
      : number(std::to_integer<std::size_t>(data[0]) % std::size(kPayloadCases)),
        seed(std::to_integer<std::uint8_t>(data[1])),
        kind(static_cast<PayloadKind>(seed % 3)),
        rest(data.begin() + 2, data.end()) {}

  const CodecSpec& codec() const { return codec_of(number); }
  const TensorSpec& tensor() const { return kPayloadCases[number].tensor; }

  std::size_t number;
  std::uint8_t seed;
  PayloadKind kind;
  Bytes rest;  // a copy of just these bytes, so that the sanitizer sees a read beyond them
};

}  // namespace laconic::fuzz
