// tensor/nvml.hpp — what NVIDIA's management library tells, where it is there.
//
// Opened by name when it is asked, never linked: machines without a driver have none.
#pragma once

#include <string>

#include "laconic/base/gpu.hpp"

namespace laconic {

std::string driver_version();  // "580.95.05"; empty where there is none

// Adds link, clocks and errors to a GPU whose `bus` is known; nothing where the library is missing
// or does not tell.
void examine_with_nvml(GpuFacts& gpu);

}  // namespace laconic
