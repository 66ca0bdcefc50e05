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
  return denormal_bits() == kFlushBits;
}

std::uint64_t denormal_bits() {
  return _mm_getcsr() & kFlushBits;
}

void set_denormal_bits(std::uint64_t bits) {
  _mm_setcsr((_mm_getcsr() & ~kFlushBits) | static_cast<unsigned>(bits));
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
  return denormal_bits() != 0;
}

std::uint64_t denormal_bits() {
  return read_fpcr() & kFlushBit;
}

void set_denormal_bits(std::uint64_t bits) {
  flush_denormals(bits != 0);
}

#else

void flush_denormals(bool) {}

bool is_flushing_denormals() {
  return false;
}

std::uint64_t denormal_bits() {
  return 0;
}

void set_denormal_bits(std::uint64_t) {}

#endif

}  // namespace laconic
