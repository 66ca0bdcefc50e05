#include "laconic/base/denormals.hpp"

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace laconic {

#if defined(__SSE2__)

namespace {
// Results to zero (FTZ, bit 15) and operands as zero (DAZ, bit 6).
constexpr unsigned kFlushBits = 0x8040;
}  // namespace

void flush_denormals(bool enable) {
  _mm_setcsr(enable ? _mm_getcsr() | kFlushBits : _mm_getcsr() & ~kFlushBits);
}

bool is_flushing_denormals() {
  return (_mm_getcsr() & kFlushBits) == kFlushBits;
}

#elif defined(__aarch64__)

namespace {
constexpr std::uint64_t kFlushBit = std::uint64_t{1} << 24;  // FPCR.FZ: operands and results

std::uint64_t read_fpcr() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
}  // namespace

void flush_denormals(bool enable) {
  const std::uint64_t value = enable ? read_fpcr() | kFlushBit : read_fpcr() & ~kFlushBit;
  asm volatile("msr fpcr, %0" : : "r"(value));
}

bool is_flushing_denormals() {
  return (read_fpcr() & kFlushBit) != 0;
}

#else

void flush_denormals(bool) {}

bool is_flushing_denormals() {
  return false;
}

#endif

}  // namespace laconic
