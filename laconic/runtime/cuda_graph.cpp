#include "laconic/runtime/cuda_graph.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <string_view>

namespace laconic {

namespace {

// Other threads may ask the GPU for other things meanwhile.
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;

// libtorch's messages go on with a stack.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

class RealCudaGraph final : public CudaGraph {
 public:
  std::string record(const std::function<void()>& body) override {
    // The graph has memory of its own; what was used so far and is free again would lie idle.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const at::Tensor spare = at::empty({1}, at::TensorOptions().dtype(at::kInt).device(at::kCUDA));
    graph_.capture_begin({0, 0}, kMode);
    std::string problem;
    try {
      body();
      if (!is_valid(stream)) problem = "something waited for the GPU";
    } catch (const std::exception& error) {
      problem = first_line(error.what());
    }
    if (problem.empty()) problem = end();
    if (!problem.empty()) discard(stream, spare);
    return problem;
  }

  void repeat() override { graph_.replay(); }

 private:
  static bool is_valid(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive;
  }

  std::string end() {
    try {
      graph_.capture_end();
      return {};
    } catch (const std::exception& error) {
      return first_line(error.what());
    }
  }

  // capture_end() of libtorch 2.11 throws when the capture is broken, before it has told the
  // allocators that it is over: from then on these serve nobody rightly (pytorch#180395). So
  // the broken one is ended here, and libtorch gets to end another, of one node that nobody wants.
  void discard(cudaStream_t stream, const at::Tensor& spare) {
    cudaGraph_t broken = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream, &broken));
    if (broken != nullptr) static_cast<void>(cudaGraphDestroy(broken));
    static_cast<void>(cudaGetLastError());
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, kMode));
    static_cast<void>(cudaMemsetAsync(spare.data_ptr(), 0, spare.nbytes(), stream));
    static_cast<void>(end());
    static_cast<void>(cudaGetLastError());
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CudaGraph> CudaGraph::make() {
  return std::make_unique<RealCudaGraph>();
}

}  // namespace laconic
