// codec/kernel/pack.hpp — small codes, one per byte, to a continuous stream of bits and back.
//
// The order is that of docs/wire-format.md: each code from its highest bit, each
// byte filled from its highest bit. Exactly ceil(count * bits / 8) bytes are
// written or read; a run that is followed by another must hold a multiple of
// eight codes, or it would end within a byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic::kernel {

struct Pack {
  // Bits beyond the last code are zero. Requires: 1 <= bits <= 8 and every code < 2^bits.
  void (*pack)(const std::uint8_t* codes, std::size_t count, int bits, std::byte* out);
  void (*unpack)(const std::byte* in, std::size_t count, int bits, std::uint8_t* codes);
};

const Pack& pack();

}  // namespace laconic::kernel
