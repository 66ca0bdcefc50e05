// tensor/tensor_link.hpp — the ends of a link, for tensors wherever they live.
//
// The frames are host bytes: that is what a slow link carries. A tensor on a GPU is
// encoded there where the link can (Sender::packs_on_device), and only the payload
// is copied; otherwise it is copied to the host first and encoded there. The bytes
// are the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/link/link.hpp"

namespace laconic {

// Packs a tensor. `x` may be on any device, with any strides, and part of a graph.
std::shared_ptr<Bytes> pack(Sender& sender, const at::Tensor& x, const MessageSpec& message = {});

// A message that a GPU is encoding, behind what libtorch has queued so far; with the tensor, which
// must live until then.
struct PackedTensor {
  at::Tensor tensor;
  DeviceMessage message;
};
// Starts it and returns; nothing, if the tensor must be packed by the host.
std::optional<PackedTensor> pack_on_device(Sender& sender, const at::Tensor& x,
                                           const MessageSpec& message = {});

struct UnpackedTensor {
  at::Tensor tensor;
  std::vector<Refusal> refused;  // see Unpacked
};

// Returns a fresh tensor of the expected dtype and shape. A GPU may still be decoding it: what
// libtorch queues from here on comes after that. What the frames say of both is compared
// with `expected` and decides nothing, so no frame can ask for memory.
UnpackedTensor unpack(Receiver& receiver, const SharedBytes& bytes, const TensorSpec& expected,
                      at::Device device, const MessageSpec& message = {});

}  // namespace laconic
