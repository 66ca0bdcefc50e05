// machine/bandwidth.hpp — how fast memory is, and how fast it is to get.
//
// Arrays are sized beyond the last cache. Bytes are counted as in STREAM: copy
// moves two arrays, triad (a = b + s c) three; the read that a plain store
// makes first is not counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

struct Bandwidth {  // GB/s, powers of ten
  double copy = 0;
  double triad = 0;
};

// Each thread works on its own part, touched first by itself. Takes at most `most_bytes` of memory
// for three arrays together.
// Requires: threads >= 1.
Bandwidth measure_bandwidth(int threads, std::int64_t l3_bytes,
                            std::int64_t most_bytes = std::int64_t{768} << 20);

// GB/s of allocating, filling and freeing the same size again and again, as training does with
// every activation. Far below copy speed, the allocator gives pages back and faults them in anew.
double measure_reallocation(std::size_t bytes = std::size_t{64} << 20, int rounds = 8);

}  // namespace laconic
