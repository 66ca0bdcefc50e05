// train/gpu_report.hpp — what a run tells of its GPUs: before the first step, and when one fails.
#pragma once

#include <string>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/train/run_estimate.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// Throws ConfigError on every rank with the problems of all of them, if there are any. Collective.
void refuse_on_all(const Problems& mine, World& world);

// A line for each GPU of all ranks, and one for each warning; nothing when all compute on the CPU.
// If `measures`, the first rank of each GPU measures its rates. Collective; rank 0's counts.
std::vector<std::string> describe_gpus(const std::vector<RankResources>& ranks, bool measures,
                                       World& world);

// Throws what a rank that computes on a GPU has caught: if it is the GPU's failure, libtorch's or a
// GpuError of the codecs, with rank, GPU, step, and what is free. Requires: in a catch block.
[[noreturn]] void rethrow_gpu_failure(int gpu, const World& world);

}  // namespace laconic
