// Messages that a GPU encodes and decodes. What travels is what sender.cpp and receiver.cpp make; a
// link with references (Delta) and learned maps stay with the host.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/link/link.hpp"
#include "laconic/link/sample.hpp"

namespace laconic {

namespace {

std::unique_ptr<PinnedBuffer> copied_to_pinned(const std::byte* device, std::uint64_t bytes) {
  auto pinned = std::make_unique<PinnedBuffer>(bytes);
  copy_to_host(device, bytes, pinned->data());
  return pinned;
}

// Memory that the GPU may use for ever must not serve anybody else: it is lost.
void give_up(std::unique_ptr<PinnedBuffer>& memory) {
  static_cast<void>(memory.release());
}

bool is_for_device(const LinkSpec& link, const TensorSpec& tensor, const MessageSpec& message) {
  if (!has_device_codecs() || goes_by_sample(link, message)) return false;
  if (message.use != Use::train) return true;
  return !std::holds_alternative<AutoEncoder>(link.codec) &&
         check_device(link.codec, tensor).empty();
}

// Elements of low_rank's warm start; 0 for other codecs.
std::uint64_t basis_size(const CodecSpec& codec, const TensorSpec& tensor) {
  const auto* low_rank = std::get_if<LowRank>(&codec);
  return low_rank == nullptr ? 0 : matrix_shape(tensor).columns * effective_rank(*low_rank, tensor);
}

}  // namespace

// --- memory under way

Uploads::~Uploads() {
  if (queued_.empty() || queued_.back().copied.wait_quietly()) return;
  for (Upload& upload : queued_) give_up(upload.memory);
}

DeviceBuffer Uploads::upload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  auto memory = std::make_unique<PinnedBuffer>(staged_bytes(codec, tensor));
  stage(codec, tensor, payload, {memory->data(), memory->size()});
  return queue(std::move(memory));
}

DeviceBuffer Uploads::upload(ByteView bytes) {
  auto memory = std::make_unique<PinnedBuffer>(bytes.size());
  std::ranges::copy(bytes, memory->data());
  return queue(std::move(memory));
}

DeviceBuffer Uploads::queue(std::unique_ptr<PinnedBuffer> memory) {
  while (!queued_.empty() && queued_.front().copied.is_done()) queued_.pop_front();
  DeviceBuffer device(memory->size());
  copy_to_device(memory->data(), memory->size(), device.data());
  queued_.push_back({std::move(memory), DeviceEvent()});
  return device;
}

HostCopy::HostCopy(const std::byte* device, std::uint64_t bytes)
    : memory_(copied_to_pinned(device, bytes)) {}

HostCopy::~HostCopy() {
  if (memory_ != nullptr && !copied_.wait_quietly()) give_up(memory_);
}

DeviceMessage::DeviceMessage(FrameHeader header, const DeviceBuffer& staged)
    : header_(std::move(header)), staged_(staged.data(), staged.size()) {}

Bytes DeviceMessage::finish() const {
  Bytes out;
  const std::span<std::byte> room = open_frame(out, header_);
  const std::size_t bytes = unstage(header_.codec, header_.tensor, staged_.bytes(), room);
  close_frame(out, 0, bytes);
  return out;
}

// --- the two ends

bool Sender::packs_on_device(const TensorSpec& tensor, const MessageSpec& message) const {
  const bool is_measured = fidelity_ != nullptr && message.use == Use::train;
  return !is_measured && is_for_device(spec_, tensor, message);
}

DeviceMessage Sender::pack_on_device(ConstDeviceTensor x, const MessageSpec& message) {
  LACONIC_ASSERT(packs_on_device(x.spec, message), spec_.name);
  const FrameHeader header = frame_header(spec_, step_, message, x.spec);
  require_encodable(spec_.name, header.codec, x.spec);
  const bool is_remembered = message.use == Use::train;
  const bool with_residual = is_remembered && std::holds_alternative<ErrorFeedback>(spec_.memory);
  if (with_residual) require_float(spec_.name, x.spec.dtype);
  const DeviceBuffer staged(staged_bytes(header.codec, x.spec));
  const DeviceBuffer scratch(device_scratch_bytes(header.codec, x.spec));
  DeviceSource source{x.spec.dtype, x.data};
  DeviceInput input{.seed = message_seed(spec_.seed, header.sequence)};
  const std::uint64_t basis = is_remembered ? basis_size(header.codec, x.spec) : 0;
  const bool has_memory = with_residual || basis > 0;
  if (has_memory) {
    if (device_feedback_ == nullptr) device_feedback_ = std::make_unique<DeviceFeedback>(feedback_);
    const DeviceFeedback::Attempt attempt =
        device_feedback_->attempt(x.spec.shape, with_residual, basis);
    input.basis = attempt.basis;
    input.has_basis = attempt.has_basis;
    if (with_residual) {
      source.memory = kernel::Memory::feedback;
      source.before = attempt.before == nullptr ? attempt.after : attempt.before;
      source.after = attempt.after;
      source.is_unsound = attempt.is_unsound;
    }
  }
  device_encode(header.codec, x.spec, source, input, staged.data(), scratch.data(), codec_stream());
  if (has_memory) device_feedback_->settle();
  return {header, staged};
}

// Requires: no step is open.
void Sender::bring_home() const {
  if (device_feedback_ == nullptr) return;
  LACONIC_ASSERT(!device_feedback_->has_open(),
                 fmt::format("{}: step {} is open", spec_.name, step_));
  device_feedback_->give_back(feedback_);
  device_feedback_ = nullptr;
}

bool Receiver::unpacks_on_device(const TensorSpec& tensor, const MessageSpec& message) const {
  return is_for_device(spec_, tensor, message);
}

void Receiver::unpack_on_device(ByteView bytes, DeviceTensor out, const MessageSpec& message) {
  LACONIC_ASSERT(unpacks_on_device(out.spec, message), spec_.name);
  const Frame frame = read_expected(bytes, frame_header(spec_, step_, message, out.spec));
  check_payload(frame.header.codec, out.spec, frame.payload);
  const DeviceBuffer staged = uploads_.upload(frame.header.codec, out.spec, frame.payload);
  const DeviceBuffer scratch(device_scratch_bytes(frame.header.codec, out.spec));
  device_decode(frame.header.codec, out.spec, staged.data(),
                {.seed = payload_seed(frame.header.codec, frame.payload)},
                {.dtype = out.spec.dtype, .out = out.data}, scratch.data(), codec_stream());
}

}  // namespace laconic
