// codec/kernel/launch.cuh — how kernels are started, and the little that they need beside CUDA.
//
// Kernels are plain CUDA, started by launch() instead of <<<...>>>: then any C++ compiler takes
// them, and kernel/emulator.hpp runs them on the CPU, thread by thread, so that tests on machines
// without a GPU know that they are right. Shared memory is one struct per kernel, launch()'s type
// argument.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/codec/kernel/device_kernel.hpp"

#ifdef __CUDACC__
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace laconic::kernel {

// Throws GpuError with what CUDA says.
void require_cuda(cudaError_t error, const char* what);
// Blocks of so many threads that the whole device holds at a time.
unsigned resident_blocks(const void* kernel, unsigned threads, std::size_t shared_bytes);

struct NoShared {};
template <class Shared>
constexpr std::size_t kSharedBytes = std::is_same_v<Shared, NoShared> ? 0 : sizeof(Shared);

template <class Shared>
__device__ __forceinline__ Shared& shared_memory() {
  extern __shared__ __align__(16) unsigned char laconic_shared[];
  return *reinterpret_cast<Shared*>(laconic_shared);
}

// Waits for all threads of the grid. Requires: started by launch_together().
__device__ __forceinline__ void grid_sync() {
  cooperative_groups::this_grid().sync();
}

template <class Shared = NoShared, class... P, class... A>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, Stream stream,
            A... arguments) {
  kernel<<<blocks, threads, kSharedBytes<Shared>, static_cast<cudaStream_t>(stream)>>>(
      arguments...);
  require_cuda(cudaGetLastError(), "a codec kernel");
}

// As many blocks as the work needs, or as the device holds: kernels stride over what is left.
template <class Shared = NoShared, class... P, class... A>
void launch_over(void (*kernel)(P...), std::uint64_t blocks, unsigned threads, Stream stream,
                 A... arguments) {
  const std::uint64_t room =
      resident_blocks(reinterpret_cast<const void*>(kernel), threads, kSharedBytes<Shared>);
  if (blocks == 0) return;
  launch<Shared>(kernel, static_cast<unsigned>(blocks < room ? blocks : room), threads, stream,
                 arguments...);
}

// All blocks at once, so that they may wait for each other.
template <class Shared = NoShared, class... P>
void launch_together(void (*kernel)(P...), std::uint64_t blocks, unsigned threads, Stream stream,
                     P... arguments) {
  const void* function = reinterpret_cast<const void*>(kernel);
  const std::uint64_t room = resident_blocks(function, threads, kSharedBytes<Shared>);
  void* pointers[] = {&arguments...};
  require_cuda(cudaLaunchCooperativeKernel(
                   function, static_cast<unsigned>(blocks < room ? blocks : room), threads,
                   pointers, kSharedBytes<Shared>, static_cast<cudaStream_t>(stream)),
               "a codec kernel");
}

}  // namespace laconic::kernel
#else
#include "laconic/codec/kernel/emulator.hpp"
#endif
