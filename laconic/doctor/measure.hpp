// doctor/measure.hpp — examine this process: libtorch, its BLAS, and their speed.
//
// The facts are those of the process that asks, so `laconic doctor` runs this
// in a worker, started with the environment that workers get. Takes two to
// five seconds and all cores; anything else that runs meanwhile makes the
// machine look worse than it is. machine/diagnosis.hpp judges the result.
#pragma once

#include <cstdint>

#include "laconic/machine/diagnosis.hpp"

namespace laconic {

struct DoctorOptions {
  int repeats = 8;            // of each product; the best counts
  std::int64_t width = 1024;  // of the square product; the others keep their ratio to it
  bool measure_memory = true;
};

// Leaves libtorch's number of threads and the caller's denormal setting as they were.
DoctorFacts measure_doctor_facts(const DoctorOptions& options = {});

// Which BLAS libtorch's products end up in, found by asking the loader.
BlasFacts examine_blas();

}  // namespace laconic
