// data/piece_cache.hpp — remembers the tokens of short pieces of text.
//
// Direct-mapped: a piece has one slot and evicts who is there, so the size (4 MB)
// is fixed and there is nothing to tune. A slot is one cache line. The memory is taken when enough
// text has come by to be worth it. One per thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace laconic {

// Fibonacci hashing: the high bits of the product depend on all bits of the key.
inline std::uint64_t scatter(std::uint64_t key) {
  return key * 0x9E3779B97F4A7C15;
}

class PieceCache {
 public:
  struct alignas(64) Slot {
    std::uint8_t bytes;  // 0: free, since no piece is empty
    std::uint8_t count;
    char piece[30];
    std::int32_t tokens[8];

    bool holds(std::string_view text) const {
      return bytes == text.size() && std::memcmp(piece, text.data(), text.size()) == 0;
    }
  };

  // Tells that so many bytes of text are about to be encoded.
  void expect(std::size_t bytes) {
    if (slots_ || (bytes_ += bytes) < kWorth) return;
    memory_.reset(std::calloc(kSlots + 1, sizeof(Slot)));
    if (!memory_) throw std::bad_alloc();
    void* begin = memory_.get();
    std::size_t space = (kSlots + 1) * sizeof(Slot);
    slots_ = static_cast<Slot*>(std::align(alignof(Slot), kSlots * sizeof(Slot), begin, space));
  }

  // The piece's slot, which may hold another piece; null for a piece that is too long to remember.
  Slot* slot_of(std::string_view piece) {
    if (!slots_ || piece.size() > sizeof Slot::piece) return nullptr;
    std::uint64_t hash = piece.size();
    for (std::size_t i = 0; i < piece.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min<std::size_t>(8, piece.size() - i));
      hash = scatter(std::rotl(hash, 23) ^ word);
    }
    return &slots_[hash >> (64 - kBits)];
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
  static constexpr std::size_t kSlots = std::size_t{1} << kBits;

  static constexpr std::size_t kWorth = 1 << 14;  // bytes of text

  std::size_t bytes_ = 0;
  std::unique_ptr<void, decltype(&std::free)> memory_{nullptr, &std::free};
  Slot* slots_ = nullptr;  // all zero: free
};

}  // namespace laconic
