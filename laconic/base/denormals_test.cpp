#include "laconic/base/denormals.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace laconic {
namespace {

TEST(Denormals, AScopeEndsAsItBegan) {
  for (const bool before : {false, true}) {
    flush_denormals(before);
    for (const bool within : {false, true}) {
      {
        const ScopedDenormals scope(within);
        EXPECT_EQ(is_flushing_denormals(), within);
      }
      EXPECT_EQ(is_flushing_denormals(), before);
      try {
        const ScopedDenormals scope(within);
        throw std::runtime_error("on the way");
      } catch (const std::runtime_error&) {
        EXPECT_EQ(is_flushing_denormals(), before);
      }
    }
  }
  flush_denormals(false);
}

#if defined(__SSE2__)
// Other libraries may set one of the two bits only, and modes that are none of our business.
TEST(Denormals, AScopeTouchesNothingForGood) {
  const unsigned original = _mm_getcsr();
  for (const unsigned bits : {0x0000u, 0x8000u, 0x0040u, 0x8040u, 0xE040u})
    for (const bool within : {false, true}) {
      const unsigned before = (original & ~0xE040u) | bits;
      _mm_setcsr(before);
      { const ScopedDenormals scope(within); }
      const unsigned after = _mm_getcsr();
      _mm_setcsr(original);
      EXPECT_EQ(after, before) << within;
    }
}
#endif

}  // namespace
}  // namespace laconic
