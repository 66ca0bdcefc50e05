// What stands for the GPU's updates in a program that was built without CUDA: they take nothing.
#include "laconic/base/error.hpp"
#include "laconic/update/cuda_update.hpp"

namespace laconic::cuda {

bool updates(const std::vector<Parameter>&) {
  return false;
}

at::Tensor squared_norms(const std::vector<Parameter>&) {
  LACONIC_ASSERT(false, "this program was built without CUDA");
  return {};
}

at::Tensor judge(const JudgeTask&) {
  LACONIC_ASSERT(false, "this program was built without CUDA");
  return {};
}

void update(const UpdateTask&, OptimiserState&, const std::vector<Parameter>&) {
  LACONIC_ASSERT(false, "this program was built without CUDA");
}

}  // namespace laconic::cuda
