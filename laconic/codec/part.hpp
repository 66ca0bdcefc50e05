// codec/part.hpp — what every codec file provides; only codec.cpp, finite.cpp and tests include
// this.
//
// One overload of each function per codec. They see f32 (codec.cpp converts)
// and run with denormals flushed. `tensor` is the original, its dtype included:
// sparse codecs store raw values in it. Payloads given to decode() have passed
// check_payload().
#pragma once

#include <cstddef>
#include <vector>

#include "laconic/codec/codec.hpp"

namespace laconic::part {

// Returns the payload's size. Requires: out holds max_payload_bytes().
std::size_t encode(const Half&, const TensorSpec&, const float*, const CodecInput&, std::byte* out);
std::size_t encode(const Quantise&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);
std::size_t encode(const Sign&, const TensorSpec&, const float*, const CodecInput&, std::byte* out);
std::size_t encode(const TopK&, const TensorSpec&, const float*, const CodecInput&, std::byte* out);
std::size_t encode(const RandomK&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);
std::size_t encode(const LowRank&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);
std::size_t encode(const AutoEncoder&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);
std::size_t encode(const Huffman&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);
std::size_t encode(const Transform&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte* out);

void check_payload(const Half&, const TensorSpec&, ByteView);
void check_payload(const Quantise&, const TensorSpec&, ByteView);
void check_payload(const Sign&, const TensorSpec&, ByteView);
void check_payload(const TopK&, const TensorSpec&, ByteView);
void check_payload(const RandomK&, const TensorSpec&, ByteView);
void check_payload(const LowRank&, const TensorSpec&, ByteView);
void check_payload(const AutoEncoder&, const TensorSpec&, ByteView);
void check_payload(const Huffman&, const TensorSpec&, ByteView);
void check_payload(const Transform&, const TensorSpec&, ByteView);

void decode(const Half&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const Quantise&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const Sign&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const TopK&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const RandomK&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const LowRank&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const AutoEncoder&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const Huffman&, const TensorSpec&, ByteView, const CodecInput&, float* out);
void decode(const Transform&, const TensorSpec&, ByteView, const CodecInput&, float* out);

std::vector<Section> sections(const Half&, const TensorSpec&, ByteView);
std::vector<Section> sections(const Quantise&, const TensorSpec&, ByteView);
std::vector<Section> sections(const Sign&, const TensorSpec&, ByteView);
std::vector<Section> sections(const TopK&, const TensorSpec&, ByteView);
std::vector<Section> sections(const RandomK&, const TensorSpec&, ByteView);
std::vector<Section> sections(const LowRank&, const TensorSpec&, ByteView);
std::vector<Section> sections(const AutoEncoder&, const TensorSpec&, ByteView);
std::vector<Section> sections(const Huffman&, const TensorSpec&, ByteView);
std::vector<Section> sections(const Transform&, const TensorSpec&, ByteView);

// The other codecs' layouts are known where is_finite() is defined.
bool has_only_finite(const Huffman&, const TensorSpec&, ByteView);
bool has_only_finite(const Transform&, const TensorSpec&, ByteView);

// Memory in one pass, for the codecs that can; the others are composed by codec.cpp. Same contracts
// as encode_with_feedback, encode_difference and decode_difference.
bool is_fusable(const Quantise&);
std::size_t encode_with_feedback(const Quantise&, const TensorSpec&, const float* x,
                                 const float* before, float* after, const CodecInput&,
                                 std::byte* out);
std::size_t encode_difference(const Quantise&, const TensorSpec&, const float* x,
                              const float* before, float* after, const CodecInput&, std::byte* out);
// out may be null.
void decode_difference(const Quantise&, const TensorSpec&, ByteView, const float* before,
                       float* after, const CodecInput&, float* out);

// What decode multiplies each element by on its way through the payload: 0 where it was not kept.
void kept_factors(const TopK&, const TensorSpec&, ByteView, float* out);
void kept_factors(const RandomK&, const TensorSpec&, ByteView, float* out);

// The kept values of a sparse codec: a 1-D tensor whose dtype is value_dtype(). They always take
// value_bytes(). In a WireError they are "payload.values" or a part of it, and begin at `base`.
std::uint64_t value_bytes(const ValueSpec&, const TensorSpec& values);
std::size_t encode_values(const ValueSpec&, const TensorSpec& values, const float*,
                          const CodecInput&, std::byte* out);
void check_values(const ValueSpec&, const TensorSpec& values, ByteView, std::size_t base);
void decode_values(const ValueSpec&, const TensorSpec& values, ByteView, const CodecInput&,
                   float* out);
std::vector<Section> value_sections(const ValueSpec&, const TensorSpec& values, ByteView,
                                    std::size_t base);

}  // namespace laconic::part
