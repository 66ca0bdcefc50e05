// tensor/tensor_link.hpp — the ends of a link, for tensors wherever they live.
//
// The frames are host bytes: that is what a slow link carries. A tensor on a
// GPU is copied to the host first and encoded there; kernels on the GPU will
// change how pack() works, not what it returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/link/link.hpp"

namespace laconic {

// Packs a tensor. `x` may be on any device, with any strides, and part of a graph.
Bytes pack(Sender& sender, const at::Tensor& x, const MessageSpec& message = {});

struct UnpackedTensor {
  at::Tensor tensor;
  std::vector<Refusal> refused;  // see Unpacked
};

// Returns a fresh tensor of the expected dtype and shape. What the frames say of both is compared
// with `expected` and decides nothing, so no frame can ask for memory.
UnpackedTensor unpack(Receiver& receiver, ByteView bytes, const TensorSpec& expected,
                      at::Device device, const MessageSpec& message = {});

}  // namespace laconic
