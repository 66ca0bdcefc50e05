// base/denormals.hpp — flush denormal numbers to zero.
//
// Many processors handle denormals (|x| < 1.2e-38 in float) by microcode: a
// matrix product fed with them runs ten times slower, and gradients of a
// saturated softmax are full of them. The setting belongs to a thread; a new
// thread inherits that of its maker. So call this first in main(), before
// anything starts the OpenMP pool, and every compute thread has it; called
// later it changes the calling thread only.
//
// Also changes results by at most one denormal: run all ranks alike.
#pragma once

#include <cstdint>

namespace laconic {

// Nothing happens on processors we do not know (neither x86 nor 64-bit ARM).
void flush_denormals(bool enable = true);

bool is_flushing_denormals();  // on the calling thread

// The bits of the thread's control register that say so. x86 has one for operands and one for
// results, and others may have set only one of them.
std::uint64_t denormal_bits();
void set_denormal_bits(std::uint64_t bits);

// As it was before, at the end of the scope.
class ScopedDenormals {
 public:
  explicit ScopedDenormals(bool flush) : before_(denormal_bits()) { flush_denormals(flush); }
  ~ScopedDenormals() { set_denormal_bits(before_); }
  ScopedDenormals(const ScopedDenormals&) = delete;
  ScopedDenormals& operator=(const ScopedDenormals&) = delete;

 private:
  std::uint64_t before_;
};

}  // namespace laconic
