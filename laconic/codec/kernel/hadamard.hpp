// codec/kernel/hadamard.hpp — random signs and a Hadamard transform of one block, and their
// inverse.
//
// Every sum is made of the same two operands in the same order, whatever the
// instruction set: the bits of the result are part of the wire format. A size
// that is no power of two is cut into powers, the largest first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic::kernel {

// Element j of the block changes sign when bit (first + j) mod 32 of word (first + j) / 32 is set.
struct SignBits {
  const std::uint32_t* words = nullptr;
  std::size_t first = 0;
};

struct Hadamard {
  // Requires: `first` is a multiple of the largest power of two in `size`.
  void (*rotate)(const float* in, std::size_t size, SignBits signs, float* out);
  // In place. Every NaN becomes the canonical one.
  void (*unrotate)(float* values, std::size_t size, SignBits signs);
};

const Hadamard& hadamard();

}  // namespace laconic::kernel
