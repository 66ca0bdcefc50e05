// tensor/test_gpu.hpp — for tests that need a GPU: elsewhere they skip, and say why.
//
//   using SomethingOnGpu = GpuTest;
//   TEST_F(SomethingOnGpu, GivesTheBytesOfTheCpu) { ... }
//
// or, in a test that needs one for a part only:
//
//   if (const std::string why = no_gpu_here(); !why.empty()) GTEST_SKIP() << why;
//
// The test program gets LABELS gpu, so that `ctest -L gpu` finds it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "laconic/tensor/gpu.hpp"

namespace laconic {

// Empty where there is one.
inline std::string no_gpu_here() {
  return count_gpus() > 0 ? "" : "no GPU here: " + no_gpu_reason(examine_cuda(), 0);
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_gpu_here(); !why.empty()) GTEST_SKIP() << why;
  }
};

}  // namespace laconic
