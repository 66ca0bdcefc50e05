#include "laconic/tensor/tensor_link.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "laconic/tensor/device_stream.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

std::shared_ptr<Bytes> pack(Sender& sender, const at::Tensor& x, const MessageSpec& message) {
  if (auto packed = pack_on_device(sender, x, message)) {
    packed->message.wait();
    return packed->message.finish();
  }
  const at::Tensor host = on_host(x);
  const TensorSpec spec = spec_of(host);
  return std::make_shared<Bytes>(sender.pack({spec, host.data_ptr()}, message));
}

std::optional<PackedTensor> pack_on_device(Sender& sender, const at::Tensor& x,
                                           const MessageSpec& message) {
  if (!x.is_cuda() || !has_device_codecs()) return std::nullopt;
  const TensorSpec spec = spec_of(x);
  if (!sender.packs_on_device(spec, message)) return std::nullopt;
  const at::Tensor tensor = x.detach().contiguous();
  codecs_wait_for(tensor.device());
  return PackedTensor{tensor, sender.pack_on_device({spec, tensor.data_ptr()}, message)};
}

UnpackedTensor unpack(Receiver& receiver, const SharedBytes& bytes, const TensorSpec& expected,
                      at::Device device, const MessageSpec& message) {
  if (device.is_cuda() && receiver.unpacks_on_device(expected, message)) {
    at::Tensor tensor =
        at::empty(expected.shape, at::TensorOptions(scalar_type_of(expected.dtype)).device(device));
    // Before: its memory may have been something else's, which is still in use.
    codecs_wait_for(tensor.device());
    try {
      Unpacked unpacked = receiver.unpack_on_device(bytes, {expected, tensor.data_ptr()}, message);
      wait_for_codecs(tensor.device());
      return {std::move(tensor), std::move(unpacked.refused)};
    } catch (...) {
      // Some of it may be decoded already, and its memory is somebody else's from here on.
      wait_for_codecs(tensor.device());
      throw;
    }
  }
  const at::Tensor host = at::empty(expected.shape, scalar_type_of(expected.dtype));
  Unpacked unpacked = receiver.unpack(*bytes, {expected, host.data_ptr()}, message);
  return {host.to(device), std::move(unpacked.refused)};
}

}  // namespace laconic
