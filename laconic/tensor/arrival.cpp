#include "laconic/tensor/arrival.hpp"

#include <ATen/ops/empty.h>

#include "laconic/codec/device_codec.hpp"
#include "laconic/tensor/device_stream.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

// A step may take minutes. Ranks that wait for this one have deadlines of their own.
constexpr std::chrono::hours kNoLimit{24 * 365};

}  // namespace

Arrival::Arrival(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !has_device_codecs()) {
    host_ = on_host(tensor);
    return;
  }
  const at::Tensor from = tensor.detach().contiguous();
  host_ =
      at::empty(from.sizes(), at::TensorOptions().dtype(from.scalar_type()).pinned_memory(true));
  host_.copy_(from, /*non_blocking=*/true);
  ready_ = queued_so_far(from.device());
}

const at::Tensor& Arrival::wait() const {
  if (ready_) ready_->wait(kNoLimit);
  return host_;
}

bool Arrival::is_here() const {
  return !ready_ || ready_->is_done();
}

}  // namespace laconic
