// tensor/arrival.hpp — numbers on their way from a GPU to the host.
//
// A copy to memory that is not pinned waits inside CUDA, and all that other threads of the process
// ask CUDA for waits with it: a rank that waited so for its loss would hold up the sums of its
// gradients until the GPU has done all that was queued before.
#pragma once

#include <ATen/core/Tensor.h>

#include "laconic/codec/device_memory.hpp"

namespace laconic {

class Arrival {
 public:
  Arrival() = default;
  // Sends for the tensor as it is when all that was queued so far is done.
  explicit Arrival(const at::Tensor& tensor);
  // Contiguous on the CPU. Waits outside CUDA, as long as it takes; throws what failed on the GPU.
  const at::Tensor& wait() const;
  // Whether it would not have to wait.
  bool is_here() const;

 private:
  at::Tensor host_;
  Ready ready_;
};

}  // namespace laconic
