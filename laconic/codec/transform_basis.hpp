// codec/transform_basis.hpp — the directions that transform codes rows in, and the bits of each.
//
// Both ends of a link make the basis by themselves, from rows that both have (what the receiver
// decoded), by the same operations in the same order: no basis travels, and a hash in every payload
// says which one was meant. The same bits on every processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace laconic {

struct TransformBasis {
  std::uint64_t columns = 0;
  std::vector<std::uint8_t> bits;  // of each direction that is kept, 8 ... 1, never ascending
  std::vector<float> directions;   // [columns, kept], orthonormal
  std::uint32_t hash = 0;          // of all of it
  bool operator==(const TransformBasis&) const = default;
};
std::uint32_t hash_of(const TransformBasis& basis);  // as if `hash` were 0

// Bits for a direction of energy `energy`, for the error that `bits` bits have where every
// direction has the energy `mean`: max(0, bits + log2(energy / mean) / 2), rounded, at most 8.
int bits_of_direction(int bits, double energy, double mean);

// The principal directions of so many rows, the strongest first; `before`, if it has as many
// columns, is where the search begins, which is then shorter. Nothing where the rows are all zero,
// or not finite. Flushes denormals by itself.
std::optional<TransformBasis> make_basis(const float* rows, std::size_t count, std::size_t columns,
                                         int bits, std::uint64_t seed,
                                         const TransformBasis* before = nullptr);

}  // namespace laconic
