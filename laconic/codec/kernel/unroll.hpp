// codec/kernel/unroll.hpp — before a loop over an array of vectors: unroll it.
//
// Such an array lives in registers only when every loop over it is unrolled;
// at -O2 the compilers do not do it unasked.
#pragma once

#if defined(__clang__)
#define LACONIC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LACONIC_UNROLL _Pragma("GCC unroll 16")
#endif
