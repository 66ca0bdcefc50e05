// codec/kernel/sign_pass.hpp — the loops of the sign codec, one instruction set at a time.
//
// The mean is summed in 16 logical lanes whatever the vectors' width, so every
// target rounds alike. Payload pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic::kernel {

struct SignPass {
  // scales: 4 bytes per block. signs: ceil(count / 8) bytes. Requires: denormals are flushed.
  void (*encode)(const float* x, std::size_t count, std::size_t block, std::uint8_t* scales,
                 std::uint8_t* signs);
  void (*decode)(const std::uint8_t* scales, const std::uint8_t* signs, std::size_t count,
                 std::size_t block, float* out);
};

const SignPass& sign_pass();

}  // namespace laconic::kernel
