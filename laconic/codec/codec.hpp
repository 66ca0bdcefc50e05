// codec/codec.hpp — numbers to payload bytes and back.
//
// encode() and decode() are pure: equal inputs give equal bytes on every rank,
// with every instruction set and thread setting (denormals count as zero in
// all of them). Randomness comes in as a seed; memory between calls (residuals,
// references, a warm start) belongs to the link and comes in as an argument.
// No libtorch here: tensor/ knows tensors and where they live.
//
// All lossy codecs compute in f32; other floats are converted on the way in
// and out. Numbers that are not finite make what they touch NaN, never
// something plausible: docs/codecs.md has the table.
//
// Single-threaded; callers split the work by message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

// A contiguous tensor in host memory, not owned. Alignment is that of its element type.
struct ConstHostTensor {
  const TensorSpec& spec;
  const void* data;
};
struct HostTensor {
  const TensorSpec& spec;
  void* data;
};

// The learned maps of auto_encoder, not owned.
struct LinearMaps {
  const float* encoder = nullptr;  // [code, columns]
  const float* decoder = nullptr;  // [columns, code]
};

struct TransformBasis;  // codec/transform_basis.hpp

// What a codec needs beside the tensor. Most need nothing.
struct CodecInput {
  std::uint64_t seed = 0;               // stochastic rounding, rotation, random_k, low_rank's start
  std::vector<float>* basis = nullptr;  // low_rank: warm start [columns, rank], replaced by encode;
                                        // null or of another size: a start drawn from the seed
  LinearMaps maps;                      // auto_encoder
  const TransformBasis* transform = nullptr;  // transform: null: as it is without one
};

// --- the two halves. Requires, everywhere: check(codec, tensor) is empty.

// Writes the payload to the front of `out` and returns its size.
// Requires: out holds max_payload_bytes().
std::size_t encode(const CodecSpec& codec, ConstHostTensor x, const CodecInput& input,
                   std::span<std::byte> out);

// Throws WireError if `payload` is not something encode() could have made for such a tensor: wrong
// length, padding that is not zero, an index out of order or range, a scale that no encoder writes.
// Never reads outside the payload. Offsets count from its start.
void check_payload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload);

// Fills `out`. Calls check_payload() first, so `out` is untouched when it throws.
void decode(const CodecSpec& codec, ByteView payload, const CodecInput& input, HostTensor out);

// --- the same with a memory, in one pass over it where the codec allows. `before` and `after` are
// f32, as many as the tensor has elements, and may be the same pointer; sender and receiver get the
// same bits of `after` from the same bytes.

// Sends x + before; after = (x + before) - what the receiver will decode.
std::size_t encode_with_feedback(const CodecSpec& codec, ConstHostTensor x, const float* before,
                                 float* after, const CodecInput& input, std::span<std::byte> out);

// Sends x - before; after = before + what the receiver will decode.
std::size_t encode_difference(const CodecSpec& codec, ConstHostTensor x, const float* before,
                              float* after, const CodecInput& input, std::span<std::byte> out);

// The receiver's half of encode_difference. `out` gets `after` in its own dtype; out.data may be
// null or equal to `after` (when f32).
void decode_difference(const CodecSpec& codec, ByteView payload, const float* before, float* after,
                       const CodecInput& input, HostTensor out);

// Whether the numbers in the payload are all finite, without decoding it: scales, kept values,
// factors. What they decode to may still overflow the tensor's dtype.
// Requires: payload passed check_payload().
bool is_finite(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload);
bool is_finite(const float* values, std::size_t count);

// sum += addend, both payloads for `tensor`. Throws WireError when they do not fit each other
// (random_k with two seeds). Requires: is_summable(codec), both passed check_payload().
void add_payload(const CodecSpec& codec, const TensorSpec& tensor, std::span<std::byte> sum,
                 ByteView addend);

// Of a sparse codec: what becomes of each element of the tensor, as the factor by which its change
// changes what is decoded. 0 where it was not kept; where it was, 1, or what decode multiplies by.
// How kept values are rounded counts for nothing. Requires: is_sparse(codec), payload passed
// check_payload(), as many factors as the tensor has elements.
void kept_factors(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                  std::span<float> factors);

// What the bytes of a payload are, for `laconic codec inspect`. Together the sections cover it.
struct Section {
  std::string name;  // "scales"
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string meaning;  // "12 f32, one per block of 256"
};
std::vector<Section> payload_sections(const CodecSpec& codec, const TensorSpec& tensor,
                                      ByteView payload);

}  // namespace laconic
