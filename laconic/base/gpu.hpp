// base/gpu.hpp — what is known of a GPU, and what follows from it. Pure: tensor/gpu.hpp measures.
//
// A fact that was not measured is zero or empty, and nothing follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

// CUDA writes versions as 1000 * major + 10 * minor.
struct CudaFacts {
  bool torch_has_cuda = false;  // libtorch was built with it
  int driver = 0;               // the newest that the driver knows
  int runtime = 0;              // that of this program
  std::string driver_version;   // "580.95.05"
};

struct GpuFacts {
  int index = 0;  // as CUDA counts
  std::string name;
  std::string bus;  // "0000:1b:00.0", which names it on its machine whatever is hidden
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  CudaFacts cuda;

  double copy_gb_per_second = 0;       // read and written, within the GPU
  double to_device_gb_per_second = 0;  // from pinned memory
  double to_host_gb_per_second = 0;    // to pinned memory
  double bf16_tflops = 0;              // of a large product

  // Of the link now, after copies over it, and at most; NVML's.
  int pcie_generation = 0, most_pcie_generation = 0;
  int pcie_width = 0, most_pcie_width = 0;
  std::vector<std::string> slowed_by;  // why its clocks are below what they could be
  std::uint64_t memory_errors = 0;     // uncorrected, since the driver was loaded
  int ranks = 0;                       // of this run that share it
};

std::string cuda_version_text(int version);  // "13.0"
std::string gib_text(double bytes);          // "139.8 GiB", as GPUs are sold

// "NVIDIA H200, 139.8 GiB (138.9 free), compute capability 9.0, driver 580.95.05 for CUDA 13.0,
// ..."
std::string to_text(const GpuFacts& gpu);
// "copies 4310 GB/s on the GPU, ..."; empty when nothing was measured.
std::string rates_text(const GpuFacts& gpu);

// What makes it slower than it could be, or is about to fail.
struct GpuWarning {
  std::string what;  // holds the numbers
  std::string fix;
  bool operator==(const GpuWarning&) const = default;
};
std::vector<GpuWarning> warnings_of(const GpuFacts& gpu);

// Why libtorch sees no GPU; `gpus` is how many the driver has.
std::string no_gpu_reason(const CudaFacts& cuda, int gpus);

// What a run wants of a GPU, as far as that may be refused.
struct GpuWish {
  bool bfloat16 = false;  // compute capability 8.0 or later
  bool tf32 = false;      // the same
};
Problems check_gpu(const GpuFacts& gpu, const GpuWish& wish);

// Whether what libtorch threw is a failure of the GPU or its libraries, and not a mistake of ours.
bool is_gpu_failure(std::string_view what);

// A failure of CUDA in the middle of work, in words that say who, where and when. `what` is what
// libtorch said, of which the first line is taken.
struct GpuFailure {
  int rank = -1;         // -1: alone
  std::string activity;  // "step 12"
  bool is_out_of_memory = false;
  std::string what;
};
std::string describe(const GpuFailure& failure, const GpuFacts& gpu);

}  // namespace laconic
