// runtime/cuda_graph.hpp — work for a GPU, recorded once and asked for again by one call.
//
// What is repeated are the kernels with the addresses they had: whatever they read must lie where
// it lay, and what they wrote is written there again. Tensors made meanwhile that somebody still
// holds keep their place; the others' is used by the next repetition alone.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace laconic {

class CudaGraph {
 public:
  // Null in a program that was built without CUDA.
  static std::unique_ptr<CudaGraph> make();
  virtual ~CudaGraph() = default;

  // Calls `body` and records what it asks for, without doing it. Returns why something in it cannot
  // be recorded, and then what it made is rubbish, which must be let go before this is; empty: it
  // is recorded. Requires: the like has run before, so that nothing is made for the first time;
  // once.
  virtual std::string record(const std::function<void()>& body) = 0;
  virtual void repeat() = 0;
};

}  // namespace laconic
