// machine/kernel/stream.hpp — the two loops of the bandwidth measure.
//
// Requires: arrays aligned to 64 bytes, count a multiple of 64.
#pragma once

#include <cstddef>

namespace laconic {

void stream_copy(float* a, const float* b, std::size_t count);                   // a = b
void stream_triad(float* a, const float* b, const float* c, std::size_t count);  // a = b + c / 2

}  // namespace laconic
