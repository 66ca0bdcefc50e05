// codec/factor.hpp — the floats of low_rank and auto_encoder as they travel: f32, f16 or bf16.
//
// What is not finite travels as the canonical NaN of its type and nothing
// else; an infinity that narrowing made counts as not finite too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/bytes.hpp"
#include "laconic/base/dtype.hpp"

namespace laconic {

// Requires, everywhere: the dtype is f32, f16 or bf16. No alignment is needed.
void put_factors(Dtype dtype, const float* in, std::size_t count, std::byte* out);
void get_factors(Dtype dtype, const std::byte* in, std::size_t count, float* out);

void fill_nan(Dtype dtype, std::size_t count, std::byte* out);
// Turns every NaN and infinity into the canonical NaN.
void settle_nan(Dtype dtype, std::size_t count, std::byte* values);

struct FactorCount {
  std::size_t nan = 0;               // canonical ones
  std::size_t unfit = 0;             // infinities and other NaN
  std::size_t first_nan = SIZE_MAX;  // their first index, SIZE_MAX if none
  std::size_t first_unfit = SIZE_MAX;
};
FactorCount count_factors(Dtype dtype, const std::byte* values, std::size_t count);

}  // namespace laconic
