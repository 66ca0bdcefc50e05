#include "laconic/codec/kernel/launch.cuh"

#include <mutex>
#include <string>
#include <unordered_map>

#include "laconic/base/gpu_error.hpp"

namespace laconic::kernel {

void require_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw GpuError(std::string("CUDA refused ") + what + ": " + cudaGetErrorString(error),
                 error == cudaErrorMemoryAllocation);
}

// Asking takes microseconds, and kernels are few.
unsigned resident_blocks(const void* kernel, unsigned threads, std::size_t shared_bytes) {
  static std::mutex mutex;
  static std::unordered_map<const void*, unsigned> known;  // of the first device asked about
  const std::lock_guard lock(mutex);
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  int device = 0, processors = 0, blocks = 0;
  require_cuda(cudaGetDevice(&device), "to name its device");
  require_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "to describe its device");
  require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                   &blocks, kernel, static_cast<int>(threads), shared_bytes),
               "a codec kernel");
  if (blocks == 0)
    throw GpuError("a codec kernel does not fit this GPU: it needs " +
                   std::to_string(shared_bytes) + " bytes of shared memory and " +
                   std::to_string(threads) + " threads");
  const auto room = static_cast<unsigned>(processors * blocks);
  known.emplace(kernel, room);
  return room;
}

}  // namespace laconic::kernel
