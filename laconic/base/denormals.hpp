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

namespace laconic {

// Nothing happens on processors we do not know (neither x86 nor 64-bit ARM).
void flush_denormals(bool enable = true);

bool is_flushing_denormals();  // on the calling thread

// As it was before, at the end of the scope.
class ScopedDenormals {
 public:
  explicit ScopedDenormals(bool flush) : before_(is_flushing_denormals()) {
    flush_denormals(flush);
  }
  ~ScopedDenormals() { flush_denormals(before_); }
  ScopedDenormals(const ScopedDenormals&) = delete;
  ScopedDenormals& operator=(const ScopedDenormals&) = delete;

 private:
  bool before_;
};

}  // namespace laconic
