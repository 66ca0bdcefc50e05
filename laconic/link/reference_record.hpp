// link/reference_record.hpp — a reference as the store keeps it, and as f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "laconic/base/bytes.hpp"
#include "laconic/link/link_spec.hpp"

namespace laconic {

std::uint64_t record_bytes(Reference kind, std::uint64_t elements);

// Requires: record.size() == record_bytes(kind, count).
void read_record(Reference kind, ByteView record, std::size_t count, float* out);
void write_record(Reference kind, const float* values, std::size_t count,
                  std::span<std::byte> record);

}  // namespace laconic
