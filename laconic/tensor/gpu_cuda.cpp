#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include "laconic/tensor/gpu.hpp"
#include "laconic/tensor/nvml.hpp"

namespace laconic {
namespace {

// This thread's GPU, restored at the end of the scope.
class ScopedGpu {
 public:
  explicit ScopedGpu(int index) {
    cudaGetDevice(&before_);
    cudaSetDevice(index);
  }
  ~ScopedGpu() { cudaSetDevice(before_); }
  ScopedGpu(const ScopedGpu&) = delete;
  ScopedGpu& operator=(const ScopedGpu&) = delete;

 private:
  int before_ = 0;
};

}  // namespace

CudaFacts examine_cuda() {
  CudaFacts facts{.torch_has_cuda = true};
  cudaDriverGetVersion(&facts.driver);
  cudaRuntimeGetVersion(&facts.runtime);
  facts.driver_version = driver_version();
  return facts;
}

GpuFacts examine_gpu(int index) {
  GpuFacts gpu{.index = index, .cuda = examine_cuda()};
  const ScopedGpu scope(index);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
    gpu.name = properties.name;
    gpu.major = properties.major;
    gpu.minor = properties.minor;
  }
  char bus[32] = "";
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess) gpu.bus = bus;
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    gpu.free_bytes = static_cast<std::int64_t>(free);
    gpu.total_bytes = static_cast<std::int64_t>(total);
  }
  cudaGetLastError();  // what could not be learnt is nobody else's failure
  examine_with_nvml(gpu);
  return gpu;
}

void free_cached_gpu_memory() {
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace laconic
