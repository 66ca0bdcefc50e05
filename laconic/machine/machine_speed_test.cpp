// The measures run on whatever machine tests run on, perhaps a busy one: only sanity is checked.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "laconic/base/denormals.hpp"
#include "laconic/machine/bandwidth.hpp"
#include "laconic/machine/peak.hpp"

namespace laconic {
namespace {

TEST(MachineSpeed, PeaksArePositiveAndOrdered) {
  const CorePeak peak = measure_core_peak(0.02);
  EXPECT_GT(peak.f64_gflops, 0.1);
  EXPECT_GT(peak.f32_gflops, peak.f64_gflops);
  EXPECT_LT(peak.f32_gflops, 10'000);
  EXPECT_TRUE(std::isfinite(peak.clock_ghz));
}

TEST(MachineSpeed, BandwidthIsPositiveForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3}) {
    const Bandwidth b = measure_bandwidth(threads, 1 << 20, 24 << 20);
    EXPECT_GT(b.copy, 0.01) << threads;
    EXPECT_GT(b.triad, 0.01) << threads;
    EXPECT_LT(b.triad, 100'000) << threads;
  }
  const double again = measure_reallocation(4 << 20, 3);
  EXPECT_GT(again, 0.001);
  EXPECT_TRUE(std::isfinite(again));
}

float half_of_the_least_normal() {
  volatile float least = std::numeric_limits<float>::min();
  return least * 0.5f;
}

TEST(Denormals, AreFlushedOnRequestAndInNewThreads) {
  ASSERT_FALSE(is_flushing_denormals());
  EXPECT_NE(half_of_the_least_normal(), 0.0f);
  {
    const ScopedDenormals scope(true);
    if (!is_flushing_denormals()) GTEST_SKIP() << "not known on this processor";
    EXPECT_EQ(half_of_the_least_normal(), 0.0f);
    bool is_inherited = false;
    std::thread([&] { is_inherited = is_flushing_denormals(); }).join();
    EXPECT_TRUE(is_inherited);
  }
  EXPECT_FALSE(is_flushing_denormals());
}

}  // namespace
}  // namespace laconic
