// codec/device_codec.hpp — the codecs on memory of a GPU, with the payloads of the CPU's.
//
// The same arithmetic in the same order (codec/kernel/exact.hpp), so the bytes, the decoded numbers
// and what is remembered are those of codec.hpp, bit by bit; docs/adr/0024 says how. All of it
// starts work on a stream and returns: nothing here waits for the device or reads from it.
//
// A payload crosses between host and device in its staged form, whose size is known beforehand. For
// most codecs that is the payload itself. top_k's indices and huffman's words are made and read on
// the host, from and to plain indices and numbers: unstage() and stage() do that. Payloads that
// come are checked on the host (check_payload) before they are staged.
//
//   sender     device_encode() ── copy ──> unstage() ──> payload
//   receiver   payload ──> check_payload(), stage() ── copy ──> device_decode()
//
// All pointers but those of stage() and unstage() are device memory; staged forms and scratch begin
// at multiples of 16 bytes. Only in builds with CUDA: elsewhere has_device_codecs() is false and
// all else throws.
#pragma once

#include <cstdint>
#include <span>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/device_kernel.hpp"

namespace laconic {

using kernel::Delivery;
using kernel::DeviceSink;
using kernel::DeviceSource;
using kernel::Stream;

// Whether this build has them; LACONIC_DEVICE_CODECS=0 in the environment says no, to compare.
bool has_device_codecs();
// LACONIC_DEVICE_CODECS=hollow: of lossy codecs, those of power_sgd excepted, a GPU copies a
// message of zeros that was encoded once, and decodes nothing. So a run trains nonsense, at the
// speed of one whose codecs cost next to nothing; what it remembers, and saves, is worthless.
bool has_hollow_codecs();

// What a codec needs beside the numbers, as CodecInput.
struct DeviceInput {
  std::uint64_t seed = 0;
  float* basis = nullptr;              // low_rank: [columns, rank], read if *has_basis and replaced
  std::uint32_t* has_basis = nullptr;  // both or none
  LinearMaps maps;                     // on the device
};

// Every reason why the device cannot encode or decode such a tensor though the CPU can.
Problems check_device(const CodecSpec& codec, const TensorSpec& tensor);

// --- sizes. Requires, here and below: check(codec, tensor) and check_device() are empty.
std::uint64_t staged_bytes(const CodecSpec& codec, const TensorSpec& tensor);
std::uint64_t device_scratch_bytes(const CodecSpec& codec, const TensorSpec& tensor);

// Encodes what the source says, as encode(), encode_with_feedback() and encode_difference() do by
// its memory.
void device_encode(const CodecSpec& codec, const TensorSpec& tensor, const DeviceSource& source,
                   const DeviceInput& input, std::byte* staged, std::byte* scratch, Stream stream);

// Decodes, and stores, adds or updates a reference by the sink's kind. input.seed is
// payload_seed() of the payload.
void device_decode(const CodecSpec& codec, const TensorSpec& tensor, const std::byte* staged,
                   const DeviceInput& input, const DeviceSink& sink, std::byte* scratch,
                   Stream stream);

// --- on the host

// The seed in a payload, 0 if there is none. Requires: it passed check_payload().
std::uint64_t payload_seed(const CodecSpec& codec, ByteView payload);
// Returns the payload's size. Requires: out holds max_payload_bytes().
std::size_t unstage(const CodecSpec& codec, const TensorSpec& tensor, ByteView staged,
                    std::span<std::byte> out);
// Requires: the payload passed check_payload(), staged has staged_bytes().
void stage(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
           std::span<std::byte> staged);

}  // namespace laconic
