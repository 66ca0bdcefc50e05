// tensor/gpu.hpp — GPUs as libtorch and the driver see them. base/gpu.hpp says what follows.
//
// A build without CUDA has no_gpu.cpp, which knows of none; one with it runs on machines without a
// GPU too.
#pragma once

#include "laconic/base/gpu.hpp"

namespace laconic {

// GPUs that libtorch can use; 0 where it was built without CUDA, or there is no driver.
int count_gpus();

// Makes it the GPU of this thread. Each thread has its own; until it is told, it is the first.
// Requires: index < count_gpus().
void use_gpu(int index);

CudaFacts examine_cuda();
// Name, memory, versions, link, clocks; takes milliseconds, and some memory of the GPU for CUDA
// itself when it is the first use of it. Leaves this thread's GPU as it was.
GpuFacts examine_gpu(int index);
// Adds what copies and products reach: about a quarter of a second, and 1 GiB of the GPU for that
// long.
void measure_rates(GpuFacts& gpu);
// Gives back what libtorch keeps for later.
void free_cached_gpu_memory();

}  // namespace laconic
