#include "laconic/base/gpu.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

GpuFacts h200() {
  return {.name = "NVIDIA H200",
          .bus = "0000:1b:00.0",
          .total_bytes = std::int64_t{140} << 30,
          .free_bytes = std::int64_t{139} << 30,
          .major = 9,
          .cuda = {true, 13000, 13000, "580.95.05"},
          .copy_gb_per_second = 4310,
          .to_device_gb_per_second = 54.5,
          .to_host_gb_per_second = 55.25,
          .bf16_tflops = 745,
          .pcie_generation = 5,
          .most_pcie_generation = 5,
          .pcie_width = 16,
          .most_pcie_width = 16};
}

// The only warning of a GPU that is like the one above but for one thing.
template <class Change>
GpuWarning warning_after(const Change& change) {
  GpuFacts gpu = h200();
  change(gpu);
  const std::vector<GpuWarning> warnings = warnings_of(gpu);
  EXPECT_EQ(warnings.size(), 1u);
  return warnings.empty() ? GpuWarning{} : warnings.front();
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Gpu, IsDescribedByWhatIsKnown) {
  EXPECT_EQ(to_text(h200()),
            "NVIDIA H200, 140.0 GiB (139.0 free), compute capability 9.0, driver 580.95.05 for "
            "CUDA 13.0, runtime 13.0, PCIe 5 x16");
  EXPECT_EQ(rates_text(h200()),
            "copies on the GPU 4310 GB/s, from the host 54.5, to the host 55.2 GB/s, bf16 products "
            "745 TFLOP/s");
  EXPECT_EQ(to_text(GpuFacts()), "GPU");
  EXPECT_EQ(rates_text(GpuFacts()), "");
}

TEST(Gpu, NothingFollowsFromAGoodOneOrFromNothing) {
  EXPECT_TRUE(warnings_of(h200()).empty());
  EXPECT_TRUE(warnings_of(GpuFacts()).empty());
}

TEST(Gpu, WarnsOfEachThingThatSlowsItDown) {
  expect_part(warning_after([](GpuFacts& g) { g.cuda.driver = 12080; }).what,
              "the driver is for CUDA 12.8, older than the runtime, 13.0");
  expect_part(warning_after([](GpuFacts& g) { g.cuda.driver = 12080; }).fix, "nothing will run");
  expect_part(warning_after([](GpuFacts& g) { g.cuda.runtime = 13010; }).fix, "may fail");
  const auto half_link = [](GpuFacts& g) {
    g.pcie_width = 8;
    g.to_device_gb_per_second = g.to_host_gb_per_second = 27;
  };
  expect_part(warning_after(half_link).what, "generation 5 x8, and could be generation 5 x16");
  const auto old_link = [](GpuFacts& g) {
    g.pcie_generation = 3;
    g.to_device_gb_per_second = g.to_host_gb_per_second = 12;
  };
  expect_part(warning_after(old_link).what, "generation 3 x16");
  expect_part(warning_after([](GpuFacts& g) { g.to_host_gb_per_second = 12.34; }).what,
              "copies to the host run at 12.3 GB/s, and the link carries 63");
  expect_part(warning_after([](GpuFacts& g) { g.to_device_gb_per_second = 20; }).what,
              "copies to the GPU run at 20.0 GB/s");
  expect_part(warning_after([](GpuFacts& g) { g.ranks = 2; }).what, "2 ranks share it");
  expect_part(warning_after([](GpuFacts& g) { g.free_bytes = std::int64_t{100} << 30; }).what,
              "40.0 GiB of its 140.0 GiB are taken");
  expect_part(warning_after([](GpuFacts& g) {
                g.slowed_by = {"power limit", "temperature"};
              }).what,
              "power limit, temperature");
  expect_part(warning_after([](GpuFacts& g) { g.memory_errors = 3; }).what, "3 errors");
  expect_part(warning_after([](GpuFacts& g) { g.major = 7, g.minor = 5; }).what,
              "compute capability 7.5");
}

TEST(Gpu, WhyThereIsNoneIsSaidInOrder) {
  expect_part(no_gpu_reason({}, 1), "without CUDA");
  expect_part(no_gpu_reason({true, 0, 13000, ""}, 0), "no driver");
  EXPECT_EQ(no_gpu_reason({true, 12040, 13000, "550.54"}, 1),
            "the driver 550.54 is for CUDA 12.4, and this program needs 13.0: install a newer one");
  expect_part(no_gpu_reason({true, 13000, 13000, ""}, 0), "CUDA_VISIBLE_DEVICES");
  expect_part(no_gpu_reason({true, 13000, 13000, ""}, 2), "libtorch cannot use them");
}

TEST(Gpu, WhatAnOldOneHasNotIsRefused) {
  GpuFacts gpu = h200();
  EXPECT_TRUE(check_gpu(gpu, {.bfloat16 = true, .tf32 = true}).empty());
  gpu.major = 8;
  EXPECT_TRUE(check_gpu(gpu, {.bfloat16 = true, .tf32 = true}).empty());
  gpu = {.index = 1, .name = "Tesla V100", .major = 7};
  EXPECT_TRUE(check_gpu(gpu, {}).empty());
  EXPECT_EQ(
      to_text(check_gpu(gpu, {.bfloat16 = true})),
      "run.precision: precision = \"bfloat16\", and cuda:1 (Tesla V100) of compute capability "
      "7.0 has no bfloat16, which begins with 8.0: use \"float32\"");
  EXPECT_EQ(check_gpu(gpu, {.bfloat16 = true, .tf32 = true}).size(), 2u);
  EXPECT_TRUE(check_gpu(GpuFacts(), {.bfloat16 = true}).empty()) << "unknown is not too old";
}

TEST(Gpu, OnlyWhatSpeaksOfCudaIsItsFailure) {
  for (const char* what :
       {"CUDA error: device-side assert triggered", "CUBLAS_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "CUDA out of memory."})
    EXPECT_TRUE(is_gpu_failure(what)) << what;
  EXPECT_FALSE(is_gpu_failure("The size of tensor a (3) must match the size of tensor b (4)"));
}

TEST(Gpu, AFailureSaysWhoWhereWhenAndHowMuch) {
  GpuFacts gpu = h200();
  gpu.index = 1;
  const std::string lost = describe(
      {.rank = 3, .activity = "step 12", .what = "CUDA error: an illegal memory access\nmore"},
      gpu);
  EXPECT_EQ(
      lost,
      "rank 3, cuda:1 (NVIDIA H200), step 12: CUDA error: an illegal memory access. The GPU's "
      "state is lost with this process: go on from the last checkpoint with --resume auto");
  gpu.free_bytes = 3'000'000;
  const std::string full =
      describe({.activity = "step 1",
                .is_out_of_memory = true,
                .what = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
                        "capacity of 139.80 GiB of which"},
               gpu);
  expect_part(full,
              "cuda:1 (NVIDIA H200), step 1: out of memory: CUDA out of memory. Tried to "
              "allocate 2.00 GiB. 3.0 MB of its 150.3 GB are free now.");
  expect_part(full, "train.microbatch");
}

}  // namespace
}  // namespace laconic
