// codec/convert.hpp — other floats to f32 and back, on host memory.
//
// Rounding is to nearest, ties to even; every NaN becomes the canonical one.
// Denormal f32 are kept by narrow() to bf16 and become zero in f16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/dtype.hpp"

namespace laconic {

// Requires: is_float(from). `in` has the alignment of its type.
void widen(Dtype from, const void* in, std::size_t count, float* out);
void narrow(Dtype to, const float* in, std::size_t count, void* out);

// The same without any alignment, for payloads.
void widen_bytes(Dtype from, const std::byte* in, std::size_t count, float* out);
void narrow_bytes(Dtype to, const float* in, std::size_t count, std::byte* out);

}  // namespace laconic
