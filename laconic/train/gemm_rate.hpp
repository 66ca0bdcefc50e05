// train/gemm_rate.hpp — how fast this rank multiplies matrices: what its use is measured by.
//
// Nobody lists the peak of a CPU with so many cores, clocks and other processes, so
// it is measured: a square product in the run's precision, on the run's device and
// threads, large enough to take a millisecond. Takes some ten milliseconds, once in a
// process for each type and device: ranks that are threads share what the first has
// measured. Other work on the machine makes it smaller; ranks that are processes of one
// machine measure at the same time.
#pragma once

#include <c10/core/TensorOptions.h>

namespace laconic {

double measure_gemm_rate(const at::TensorOptions& options);  // operations per second; thread-safe

}  // namespace laconic
