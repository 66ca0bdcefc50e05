#include "laconic/tensor/tensor_link.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "laconic/tensor/host.hpp"

namespace laconic {

Bytes pack(Sender& sender, const at::Tensor& x, const MessageSpec& message) {
  const at::Tensor host = on_host(x);
  const TensorSpec spec = spec_of(host);
  return sender.pack({spec, host.data_ptr()}, message);
}

UnpackedTensor unpack(Receiver& receiver, ByteView bytes, const TensorSpec& expected,
                      at::Device device, const MessageSpec& message) {
  const at::Tensor host = at::empty(expected.shape, scalar_type_of(expected.dtype));
  Unpacked unpacked = receiver.unpack(bytes, {expected, host.data_ptr()}, message);
  return {host.to(device), std::move(unpacked.refused)};
}

}  // namespace laconic
