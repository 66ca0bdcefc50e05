// codec/kernel/conversion.hpp — float conversions and sums on bytes, one instruction set at a time.
//
// Nothing needs alignment, and outputs beyond 4 MiB go past the caches. Every
// entry gives the same bits on every target and whatever the thread does with
// denormals; codec/convert.hpp says what is kept and what becomes zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic::kernel {

// in, count of elements, out.
using Convert = void (*)(const std::uint8_t*, std::size_t, std::uint8_t*);
// The position of the first NaN that is not the canonical one, or count.
using FindNan = std::size_t (*)(const std::uint8_t*, std::size_t count);

struct Conversion {
  Convert widen_f16, widen_bf16, widen_f64;     // to f32
  Convert narrow_f16, narrow_bf16, narrow_f64;  // from f32
  Convert copy_f32;                             // NaN becomes canonical
  FindNan find_odd_nan_f16, find_odd_nan_bf16, find_odd_nan_f32;
  // sum[i] += addend[i]; f32, aligned as floats are. Which NaN a sum makes depends on the order of
  // its addends and on the compiler; here it is the canonical one.
  void (*add)(float* sum, const float* addend, std::size_t count);
};

const Conversion& conversion();

}  // namespace laconic::kernel
