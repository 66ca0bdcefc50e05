#include <ATen/Context.h>

#include "laconic/tensor/gpu.hpp"
#include "laconic/tensor/nvml.hpp"

namespace laconic {

CudaFacts examine_cuda() {
  return {.torch_has_cuda = at::hasCUDA(), .driver_version = driver_version()};
}

GpuFacts examine_gpu(int index) {
  return {.index = index, .cuda = examine_cuda()};
}

void free_cached_gpu_memory() {}

}  // namespace laconic
