#include "laconic/runtime/cuda_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

namespace laconic {

namespace {

class RealCudaGraph final : public CudaGraph {
 public:
  bool record(const std::function<void()>& body) override {
    // The graph has memory of its own; what was used so far and is free again would lie idle.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    bool is_good = false;
    // Other threads may ask the GPU for other things meanwhile.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      body();
      is_good = true;
    } catch (const std::exception&) {
      // It is told by is_good; what cannot be recorded can be done all the same.
    }
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      is_good = false;
    }
    if (!is_good) static_cast<void>(cudaGetLastError());
    return is_good;
  }

  void repeat() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CudaGraph> CudaGraph::make() {
  return std::make_unique<RealCudaGraph>();
}

}  // namespace laconic
