// doctor/gpu.hpp — graphics processors, as the driver names them.
//
// Asks the driver itself, not libtorch: a machine with a GPU and a libtorch
// that cannot use it is exactly what a doctor should see.
#pragma once

#include <string>
#include <vector>

namespace laconic {

std::vector<std::string> detect_gpus();  // "NVIDIA H200, 139.8 GiB"; empty without a driver

}  // namespace laconic
