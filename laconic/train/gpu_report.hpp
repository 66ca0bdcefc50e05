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

// What libtorch threw on a rank that computes on a GPU, with rank, GPU, step, and what is free.
// `is_out_of_memory`: it was c10::OutOfMemoryError.
std::string describe_gpu_failure(const std::string& what, bool is_out_of_memory, int gpu,
                                 const World& world);

}  // namespace laconic
