// codec/huffman_code.hpp — which bits stand for which byte, by how often each byte occurs.
//
// A code is a list of lengths. Its words follow from them (canonical: shorter
// ones first, of equals the smaller byte first, counting up), so only lengths
// travel. A byte that is the only one needs no bits at all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace laconic {

inline constexpr int kMaxCodeBits = 12;  // a decoder's table then has 8 KiB

using ByteCounts = std::array<std::uint64_t, 256>;
using CodeLengths = std::array<std::uint8_t, 256>;  // in bits; 0: the byte does not occur

// Huffman's lengths. Of equal weights a byte is joined before a node, the smaller byte and the
// older node first. Where a word would have more than kMaxCodeBits, all counts are halved, rounding
// up, and it begins anew. All zero if fewer than two bytes occur.
CodeLengths huffman_lengths(const ByteCounts& counts);

// Whether words of these lengths exist and leave no bits without a meaning.
bool is_complete_code(const CodeLengths& lengths);

// The words, each in the low bits. Requires: is_complete_code().
std::array<std::uint16_t, 256> canonical_words(const CodeLengths& lengths);

// What the next bits mean: entry i is for bits that begin with i in `width` bits.
struct DecodingTable {
  struct Entry {
    std::uint8_t byte = 0;
    std::uint8_t length = 0;
  };
  int width = 0;  // of the longest word
  std::vector<Entry> entries;
};
// Requires: is_complete_code().
DecodingTable decoding_table(const CodeLengths& lengths);

}  // namespace laconic
