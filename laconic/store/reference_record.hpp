// store/reference_record.hpp — a reference as the store keeps it, and as f32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "laconic/base/bytes.hpp"
#include "laconic/base/named.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

// How a record keeps a reference: 4 bytes an element, 2, or about 1 (blocks of 64 with an f32
// scale).
enum class Reference : std::uint8_t { f32, bf16, q8 };
inline constexpr auto kReferenceNames = std::to_array<Named<Reference>>(
    {{Reference::f32, "f32"}, {Reference::bf16, "bf16"}, {Reference::q8, "q8"}});

std::uint64_t record_bytes(Reference kind, std::uint64_t elements);

// A record is what this codec makes of the reference, as a flat tensor of f32.
CodecSpec record_codec(Reference kind);
// The numbers in a record that tell whether it is finite: they begin at its front.
struct TellingNumbers {
  Dtype dtype = Dtype::f32;
  std::uint64_t count = 0;
};
TellingNumbers telling_numbers(Reference kind, std::uint64_t elements);

// Requires: record.size() == record_bytes(kind, count).
void read_record(Reference kind, ByteView record, std::size_t count, float* out);
void write_record(Reference kind, const float* values, std::size_t count,
                  std::span<std::byte> record);

// True if what read_record() would give is finite. A finite payload does not make it so: decoding
// to f16 and writing as bf16 round up.
bool is_finite(Reference kind, ByteView record, std::size_t count);

// True if write_record() could have made it, for some number of elements.
bool is_record(Reference kind, ByteView record);

}  // namespace laconic
