// machine/peak.hpp — how fast one core can multiply and add.
//
// Measured, not looked up: twelve independent chains of vector multiply-adds
// in the widest vectors Highway knows here, which no matrix product can beat.
// Runs for tens of milliseconds on the calling thread; other work on the
// machine makes the numbers smaller, so the best of several runs is taken.
#pragma once

namespace laconic {

struct CorePeak {
  double f32_gflops = 0;
  double f64_gflops = 0;
  double clock_ghz = 0;  // from a chain of dependent integer additions, one per cycle
};

CorePeak measure_core_peak(double seconds_each = 0.05);

}  // namespace laconic
