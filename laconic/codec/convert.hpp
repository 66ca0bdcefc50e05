// codec/convert.hpp — other floats to f32 and back, on host memory.
//
// Rounding is to nearest, ties to even; every NaN becomes the canonical one,
// what overflows becomes infinite. Denormal f32 are kept by narrow() to f32 and
// bf16 and become zero in f16 and f64; denormal f16 and bf16 are kept both
// ways; an f64 below 2^-126 widens to zero. So the bits depend neither on the
// instruction set nor on the thread's treatment of denormals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/dtype.hpp"

namespace laconic {

// Requires: is_float(from). `in` has the alignment of its type. No overlap.
void widen(Dtype from, const void* in, std::size_t count, float* out);
void narrow(Dtype to, const float* in, std::size_t count, void* out);

// The same without any alignment, for payloads.
void widen_bytes(Dtype from, const std::byte* in, std::size_t count, float* out);
void narrow_bytes(Dtype to, const float* in, std::size_t count, std::byte* out);

// The position of the first NaN that narrow_bytes() does not write, or count. Not for f64.
std::size_t find_odd_nan(Dtype of, const std::byte* in, std::size_t count);

}  // namespace laconic
