// train/gpu_report.hpp — what a run tells of its GPUs: before the first step, and when one fails.
#pragma once

#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/train/run_estimate.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// A line for each GPU of all ranks, and one for each warning; nothing on the CPU. With
// network.preflight the first rank of each GPU measures its rates. Collective; rank 0's counts.
std::vector<std::string> describe_gpus(const RunConfig& config,
                                       const std::vector<RankResources>& ranks, World& world);

// Throws what a rank that computes on a GPU has caught: if it is the GPU's failure, libtorch's or a
// GpuError of the codecs, with rank, GPU, step, and what is free. Requires: in a catch block.
[[noreturn]] void rethrow_gpu_failure(int gpu, const World& world);

}  // namespace laconic
