// data/piece_cache.hpp — remembers the tokens of short pieces of text.
//
// Direct-mapped: a piece has one slot and evicts who is there, so the size (4 MB)
// is fixed and there is nothing to tune. A slot is one cache line. One per thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace laconic {

// Fibonacci hashing: the high bits of the product depend on all bits of the key.
inline std::uint64_t scatter(std::uint64_t key) {
  return key * 0x9E3779B97F4A7C15;
}

class PieceCache {
 public:
  struct alignas(64) Slot {
    std::uint8_t bytes = 0;  // 0: free, since no piece is empty
    std::uint8_t count = 0;
    char piece[30];
    std::int32_t tokens[8];

    bool holds(std::string_view text) const {
      return bytes == text.size() && std::memcmp(piece, text.data(), text.size()) == 0;
    }
  };

  static bool fits(std::string_view piece) { return piece.size() <= sizeof Slot::piece; }

  // The piece's slot, which may hold another piece. Requires: fits(piece).
  Slot& slot_of(std::string_view piece) {
    std::uint64_t hash = piece.size();
    for (std::size_t i = 0; i < piece.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min<std::size_t>(8, piece.size() - i));
      hash = scatter(std::rotl(hash, 23) ^ word);
    }
    return slots_[hash >> (64 - kBits)];
  }

  // Leaves the slot as it is when there are too many tokens.
  static void remember(Slot& slot, std::string_view piece, std::span<const std::int32_t> tokens) {
    if (tokens.size() > std::size(slot.tokens)) return;
    slot.bytes = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(tokens.size());
    std::copy(piece.begin(), piece.end(), slot.piece);
    std::copy(tokens.begin(), tokens.end(), slot.tokens);
  }

 private:
  static constexpr int kBits = 16;
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << kBits);
};

}  // namespace laconic
