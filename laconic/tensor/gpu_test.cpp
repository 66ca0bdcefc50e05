#include "laconic/tensor/gpu.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <thread>

#include "laconic/tensor/test_gpu.hpp"

namespace laconic {
namespace {

using Gpu = GpuTest;

TEST_F(Gpu, IsKnownByNameMemoryAndVersions) {
  for (int index = 0; index < count_gpus(); ++index) {
    const GpuFacts gpu = examine_gpu(index);
    EXPECT_EQ(gpu.index, index);
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_FALSE(gpu.bus.empty());
    EXPECT_GT(gpu.total_bytes, std::int64_t{1} << 30);
    EXPECT_GT(gpu.free_bytes, 0);
    EXPECT_LE(gpu.free_bytes, gpu.total_bytes);
    EXPECT_GE(gpu.major, 5);
    EXPECT_GE(gpu.cuda.driver, 10000);
    EXPECT_GE(gpu.cuda.runtime, 10000);
  }
}

TEST_F(Gpu, RatesAreThoseOfAGpuAndLeaveNothingBehind) {
  GpuFacts gpu = examine_gpu(0);
  const std::int64_t before = gpu.free_bytes;
  measure_rates(gpu);
  for (const double rate :
       {gpu.copy_gb_per_second, gpu.to_device_gb_per_second, gpu.to_host_gb_per_second}) {
    EXPECT_TRUE(std::isfinite(rate));
    EXPECT_GT(rate, 1);
  }
  EXPECT_GT(gpu.copy_gb_per_second, gpu.to_device_gb_per_second);
  EXPECT_TRUE(gpu.major < 8 || gpu.bf16_tflops > 10) << gpu.bf16_tflops;
  // Libraries may keep handles and workspaces.
  EXPECT_LT(before - examine_gpu(0).free_bytes, std::int64_t{600} << 20);
}

TEST_F(Gpu, IsChosenForOneThread) {
  const int last = count_gpus() - 1;
  int seen = -1;
  std::thread([&] {
    use_gpu(last);
    seen = at::ones({1}, at::TensorOptions().device(at::kCUDA)).device().index();
  }).join();
  EXPECT_EQ(seen, last);
}

}  // namespace
}  // namespace laconic
