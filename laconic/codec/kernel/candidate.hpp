// codec/kernel/candidate.hpp — find the few large elements of a tensor, in one pass over it.
//
// Elements are compared by rank_key(): their magnitude as an integer, with all
// NaN equal and above infinity, and all denormals equal to zero.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace laconic::kernel {

inline constexpr std::uint32_t kNanKey = 0x7F800001u;

inline std::uint32_t rank_key(float x) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
  return magnitude < 0x00800000u ? 0 : std::min(magnitude, kNanKey);
}

// What collect() looks for, and where it puts what it finds.
struct Candidates {
  std::uint32_t threshold = 0;     // a key; larger ones are taken
  std::uint64_t ties_left = 0;     // how many equal to it are taken, first come first served
  std::size_t room = 0;            // collect() stops when there are more
  std::uint32_t* index = nullptr;  // both hold room + kCandidateSlack
  float* value = nullptr;
  std::size_t size = 0;
};
inline constexpr std::size_t kCandidateSlack = 64;  // vectors are stored whole

// Appends what it finds in x, with indices that count from x. Returns false, with no more than
// room + kCandidateSlack appended, when there was not room enough. Requires: count <= 2^31.
bool collect(const float* x, std::size_t count, Candidates& candidates);

}  // namespace laconic::kernel
