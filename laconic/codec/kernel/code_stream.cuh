// codec/kernel/code_stream.cuh — codes of a few bits in a stream, as kernel/pack.hpp, from
// registers.
//
// Eight codes are `bits` whole bytes, the first code in the highest bits of the first byte.
#pragma once

#include "laconic/codec/kernel/access.cuh"

namespace laconic::kernel {

struct CodeStream {
  int bits;
  unsigned alignment;  // of `at`: 1, 2, 4 or 8
  std::byte* at;

  CodeStream(int bits, std::byte* at)
      : bits(bits),
        alignment(is_aligned_to(at, 8)   ? 8
                  : is_aligned_to(at, 4) ? 4
                  : is_aligned_to(at, 2) ? 2
                                         : 1),
        at(at) {}

  // Codes 8 e ... 8 e + 7, in the low 8 * bits bits of a word, of which `count` exist; the others
  // are zero.
  __device__ __forceinline__ void store_eight(std::uint64_t e, std::uint64_t word,
                                              std::uint64_t count) const {
    std::byte* to = at + e * static_cast<unsigned>(bits);
    if (count >= 8) {
      if (bits == 4 && alignment >= 4) {
        *reinterpret_cast<std::uint32_t*>(to) =
            __byte_perm(static_cast<std::uint32_t>(word), 0, 0x0123);
        return;
      }
      if (bits == 8 && alignment >= 8) {
        *reinterpret_cast<uint2*>(to) =
            uint2{__byte_perm(static_cast<std::uint32_t>(word >> 32), 0, 0x0123),
                  __byte_perm(static_cast<std::uint32_t>(word), 0, 0x0123)};
        return;
      }
      if (bits == 2 && alignment >= 2) {
        *reinterpret_cast<std::uint16_t*>(to) =
            static_cast<std::uint16_t>((word & 0xFF) << 8 | (word >> 8 & 0xFF));
        return;
      }
      count = 8;
    }
    const int bytes = (static_cast<int>(count) * bits + 7) / 8;
    for (int b = 0; b < bytes; ++b) to[b] = static_cast<std::byte>(word >> 8 * (bits - 1 - b));
  }

  // The lanes of a warp hold the fours of 128 elements from `a` on in codes_a, and of as many from
  // `b` on in codes_b; of the elements left_a and left_b exist. Even lanes store eights of the
  // first, odd ones of the second.
  __device__ __forceinline__ void store_pair(std::uint64_t a, std::uint64_t b, unsigned lane,
                                             std::uint64_t left_a, std::uint64_t left_b,
                                             std::uint32_t codes_a, std::uint32_t codes_b) const {
    const bool is_odd = lane % 2 != 0;
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_odd ? codes_a : codes_b, 1);
    const std::uint64_t word = is_odd ? std::uint64_t{other} << 4 * bits | codes_b
                                      : std::uint64_t{codes_a} << 4 * bits | other;
    const unsigned within = lane / 2 * 8;
    const std::uint64_t left = is_odd ? left_b : left_a;
    if (within < left) store_eight(((is_odd ? b : a) + within) / 8, word, left - within);
  }

  // Codes 8 e ... 8 e + 7 of 3 bits, as `word`, of which four lanes of a warp, two apart, have
  // neighbouring ones, the first at a multiple of 4: three of them store a word.
  __device__ __forceinline__ void store_threes(std::uint64_t e, std::uint32_t word) const {
    const unsigned mine = static_cast<unsigned>(e) % 4;
    const std::uint32_t next = __shfl_sync(kAllLanes, word, threadIdx.x % 32 + 2);
    const std::uint32_t joined = word << 8 * (mine + 1) % 32 | next >> (16 - 8 * mine) % 32;
    if (mine < 3)
      *reinterpret_cast<std::uint32_t*>(at + e / 4 * 12 + 4 * mine) =
          __byte_perm(joined, 0, 0x0123);
  }

  // The same as store_pair() for teams of any number of lanes, an even one. kWhole: all elements
  // exist. kFours: a and b are multiples of 32, and so are the elements of a team.
  template <bool kWhole, bool kFours = false>
  __device__ __forceinline__ void store_pair_of(std::uint64_t a, std::uint64_t b, unsigned lane,
                                                unsigned left_a, unsigned left_b,
                                                std::uint32_t codes_a,
                                                std::uint32_t codes_b) const {
    const bool is_odd = lane % 2 != 0;
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_odd ? codes_a : codes_b, 1);
    const std::uint64_t word = is_odd ? std::uint64_t{other} << 4 * bits | codes_b
                                      : std::uint64_t{codes_a} << 4 * bits | other;
    const unsigned within = lane / 2 * 8, left = is_odd ? left_b : left_a;
    const std::uint64_t e = ((is_odd ? b : a) + within) / 8;
    if constexpr (kFours)
      if (bits == 3 && alignment >= 4) return store_threes(e, static_cast<std::uint32_t>(word));
    if constexpr (kWhole)
      store_eight(e, word, 8);
    else if (within < left)
      store_eight(e, word, left - within);
  }

  __device__ __forceinline__ std::uint64_t load_eight(std::uint64_t e, std::uint64_t count) const {
    const std::byte* from = at + e * static_cast<unsigned>(bits);
    if (count >= 8) {
      if (bits == 4 && alignment >= 4)
        return __byte_perm(*reinterpret_cast<const std::uint32_t*>(from), 0, 0x0123);
      if (bits == 8 && alignment >= 8) {
        const uint2 both = *reinterpret_cast<const uint2*>(from);
        return std::uint64_t{__byte_perm(both.x, 0, 0x0123)} << 32 | __byte_perm(both.y, 0, 0x0123);
      }
      count = 8;
    }
    const int bytes = (static_cast<int>(count) * bits + 7) / 8;
    std::uint64_t word = 0;
    for (int b = 0; b < bytes; ++b)
      word |= static_cast<std::uint64_t>(from[b]) << 8 * (bits - 1 - b);
    return word;
  }

  // The other way round: 256 elements from `first` on, a multiple of 8, of which `left` exist.
  // codes[0] is the four of this lane in the first half, codes[1] in the second.
  __device__ __forceinline__ void load_pair(std::uint64_t first, unsigned lane, std::uint64_t left,
                                            std::uint32_t (&codes)[2]) const {
    const bool is_odd = lane % 2 != 0;
    const unsigned within = (is_odd ? 128 : 0) + lane / 2 * 8;
    const std::uint64_t word = within < left ? load_eight((first + within) / 8, left - within) : 0;
    const std::uint32_t mask = bits == 8 ? ~0u : (1u << 4 * bits) - 1;
    const auto high = static_cast<std::uint32_t>(word >> 4 * bits) & mask;
    const auto low = static_cast<std::uint32_t>(word) & mask;
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_odd ? high : low, 1);
    codes[0] = is_odd ? other : high;
    codes[1] = is_odd ? low : other;
  }
};

}  // namespace laconic::kernel
