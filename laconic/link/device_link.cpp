// Messages that a GPU encodes and decodes. What travels is what sender.cpp and receiver.cpp make;
// learned maps stay with the host. Samples with references are in device_delta.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/link/link.hpp"
#include "laconic/link/sample.hpp"

namespace laconic {

namespace {

// When the copy that was just queued is done; if nobody can tell, the memory is lost.
template <class Memory>
DeviceEvent copy_of(Memory& memory) {
  try {
    return DeviceEvent();
  } catch (...) {
    lose(std::move(memory));
    throw;
  }
}

// A payload of such a codec is staged as it is.
bool is_staged_as_it_is(const CodecSpec& codec) {
  return !std::holds_alternative<TopK>(codec) && !std::holds_alternative<Huffman>(codec);
}

std::unique_ptr<PinnedBuffer> copied_to_pinned(const std::byte* device, std::uint64_t bytes) {
  auto pinned = std::make_unique<PinnedBuffer>(bytes);
  copy_to_host(device, bytes, pinned->data());
  return pinned;
}

bool can_encode(const CodecSpec& codec, const TensorSpec& tensor) {
  return !std::holds_alternative<AutoEncoder>(codec) && check_device(codec, tensor).empty();
}

bool is_for_device(const LinkSpec& link, const TensorSpec& tensor, const MessageSpec& message) {
  if (!has_device_codecs()) return false;
  if (message.use != Use::train) {
    const CodecSpec& codec = codec_of(link, message);
    return std::holds_alternative<Raw>(codec) || can_encode(codec, tensor);
  }
  const auto* delta = std::get_if<Delta>(&link.memory);
  return can_encode(link.codec, tensor) && (delta == nullptr || can_encode(delta->first, tensor));
}

// One of the samples of a tensor, whatever it has of them.
TensorSpec sample_of(TensorSpec tensor) {
  if (!tensor.shape.empty()) tensor.shape.erase(tensor.shape.begin());
  return tensor;
}

}  // namespace

// --- memory under way

Uploads& Uploads::operator=(Uploads&& other) noexcept {
  Uploads gone(std::move(*this));  // waits
  queued_.swap(other.queued_);
  return *this;
}

Uploads::~Uploads() {
  if (queued_.empty() || queued_.back().copied.wait_quietly()) return;
  for (Upload& upload : queued_) lose(std::move(upload.memory));
}

void Uploads::forget_copied() {
  while (!queued_.empty() && queued_.front().copied.is_done()) queued_.pop_front();
}

void Uploads::queue(std::shared_ptr<const void> memory, ByteView bytes, std::byte* device) {
  copy_to_device(bytes.data(), bytes.size(), device);
  DeviceEvent copied = copy_of(memory);
  queued_.push_back({std::move(memory), std::move(copied)});
}

DeviceBuffer Uploads::upload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                             const SharedBytes& message) {
  forget_copied();
  DeviceBuffer staged(staged_bytes(codec, tensor));
  if (is_staged_as_it_is(codec) && is_from_source(*message)) {
    queue(message, payload, staged.data());
    return staged;
  }
  auto memory = std::make_shared<PinnedBuffer>(staged.size());
  stage(codec, tensor, payload, {memory->data(), memory->size()});
  queue(memory, {memory->data(), memory->size()}, staged.data());
  return staged;
}

DeviceBuffer Uploads::upload(ByteView bytes) {
  DeviceBuffer device(bytes.size());
  upload(bytes, device.data());
  return device;
}

void Uploads::upload(ByteView bytes, std::byte* device) {
  forget_copied();
  auto memory = std::make_shared<PinnedBuffer>(bytes.size());
  std::ranges::copy(bytes, memory->data());
  queue(memory, {memory->data(), memory->size()}, device);
}

HostCopy::HostCopy(const std::byte* device, std::uint64_t bytes)
    : memory_(copied_to_pinned(device, bytes)), copied_(copy_of(memory_)) {}

HostCopy::~HostCopy() {
  if (memory_ != nullptr && !copied_.wait_quietly()) lose(std::move(memory_));
}

void HostCopy::send_back(std::byte* device) {
  copy_to_device(memory_->data(), memory_->size(), device);
  copied_ = copy_of(memory_);
}

FrameCopy::FrameCopy(std::shared_ptr<Bytes> frame, std::span<std::byte> room,
                     const std::byte* device)
    : frame_(std::move(frame)),
      payload_bytes_(room.size()),
      copied_((copy_to_host(device, room.size(), room.data()), copy_of(frame_))) {}

FrameCopy::~FrameCopy() {
  if (frame_ != nullptr && !copied_.wait_quietly()) lose(std::move(frame_));
}

std::shared_ptr<Bytes> FrameCopy::finish() {
  LACONIC_ASSERT(frame_ != nullptr, "the frame was given away");
  close_frame(*frame_, 0, payload_bytes_);
  return std::move(frame_);
}

std::uint64_t Download::take(std::uint64_t bytes) {
  const std::uint64_t at = taken_;
  taken_ += (bytes + 15) / 16 * 16;
  LACONIC_ASSERT(taken_ <= device_.size(),
                 fmt::format("{} bytes at {} of {}", bytes, at, device_.size()));
  return at;
}

void Download::close() {
  copy();
  device_ = {};
}

// What was taken since the last time.
void Download::copy() {
  const std::uint64_t bytes = taken_ - copied_;
  if (bytes == 0) return;
  copies_.push_back({copied_, HostCopy(device_.data() + copied_, bytes)});
  copied_ += bytes;
}

void Download::wait(std::chrono::milliseconds limit) const {
  if (!copies_.empty()) copies_.back().host.wait(limit);
}

const std::byte* Download::host(std::uint64_t at) {
  if (at >= copied_) copy();
  const auto behind = std::ranges::upper_bound(copies_, at, {}, &Copy::begin);
  LACONIC_ASSERT(behind != copies_.begin(), fmt::format("nothing was taken at {}", at));
  const Copy& copy = *std::prev(behind);
  copy.host.wait();
  return copy.host.bytes().data() + (at - copy.begin);
}

DeviceMessage::DeviceMessage(std::shared_ptr<Download> download, std::vector<Part> parts)
    : download_(std::move(download)), parts_(std::move(parts)) {
  download_->close();
}

DeviceMessage::DeviceMessage(std::shared_ptr<Download> download, const Part& part)
    : download_(std::move(download)), parts_{part} {
  if (is_staged_as_it_is(part.header.codec)) {
    auto frame = std::make_shared<Bytes>();
    const std::span<std::byte> room = open_frame(*frame, part.header);
    if (is_from_source(*frame)) {
      frame_.emplace(std::move(frame), room, download_->device(part.at));
      download_->close_copied();
      return;
    }
  }
  download_->close();
}

std::shared_ptr<Bytes> DeviceMessage::finish() {
  if (frame_) return frame_->finish();
  auto message = std::make_shared<Bytes>();
  Bytes& out = *message;
  std::size_t most = 0;
  for (const Part& part : parts_) most += max_frame_bytes(part.header);
  out.reserve(most);
  for (const Part& part : parts_) {
    const FrameHeader& header = part.header;
    const std::size_t start = out.size();
    const std::uint64_t staged = staged_bytes(header.codec, header.tensor);
    const std::span<std::byte> room = open_frame(out, header);
    const ByteView bytes = staged == 0 ? ByteView() : ByteView(download_->host(part.at), staged);
    close_frame(out, start, unstage(header.codec, header.tensor, bytes, room));
  }
  return message;
}

// --- the two ends

bool Sender::packs_on_device(const TensorSpec& tensor, const MessageSpec& message) const {
  const bool is_measured = fidelity_ != nullptr && message.use == Use::train;
  const bool is_cold = std::holds_alternative<LowRank>(codec_of(spec_, message)) &&
                       (!spec_.has_warm_start || message.use != Use::train);
  if (is_measured || is_cold) return false;
  if (!goes_by_sample(spec_, message)) return is_for_device(spec_, tensor, message);
  return is_for_device(spec_, sample_of(tensor), message);
}

DeviceMessage Sender::pack_on_device(ConstDeviceTensor x, const MessageSpec& message) {
  LACONIC_ASSERT(packs_on_device(x.spec, message), spec_.name);
  if (goes_by_sample(spec_, message)) return pack_samples_on_device(x, message);
  return pack_whole_on_device(x, message, nullptr);
}

DeviceMessage Sender::pack_in_place_on_device(DeviceTensor x, const MessageSpec& message) {
  LACONIC_ASSERT(packs_on_device(x.spec, message) && !goes_by_sample(spec_, message), spec_.name);
  return pack_whole_on_device({x.spec, x.data}, message, x.data);
}

// What is staged is decoded as it lies on the device, where receivers bring it again: the same
// bytes, by the same kernels.
DeviceMessage Sender::pack_whole_on_device(ConstDeviceTensor x, const MessageSpec& message,
                                           void* decoded) {
  const FrameHeader header = frame_header(spec_, step_, message, x.spec);
  require_encodable(spec_.name, header.codec, x.spec);
  const bool is_remembered = message.use == Use::train;
  const bool with_residual = is_remembered && std::holds_alternative<ErrorFeedback>(spec_.memory);
  if (with_residual) require_float(spec_.name, x.spec.dtype);
  const std::uint64_t bytes = staged_bytes(header.codec, x.spec);
  auto download = std::make_shared<Download>(bytes);
  const std::uint64_t at = download->take(bytes);
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
  device_encode(header.codec, x.spec, source, input, download->device(at), scratch.data(),
                codec_stream());
  if (decoded != nullptr && (is_lossy(header.codec) || has_memory))
    device_decode(header.codec, x.spec, download->device(at), {.seed = input.seed},
                  {.dtype = x.spec.dtype, .out = decoded}, scratch.data(), codec_stream());
  if (has_memory) device_feedback_->settle();
  return {std::move(download), DeviceMessage::Part{header, at}};
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
  if (!goes_by_sample(spec_, message)) return is_for_device(spec_, tensor, message);
  return is_for_device(spec_, sample_of(tensor), message);
}

Unpacked Receiver::unpack_on_device(const SharedBytes& bytes, DeviceTensor out,
                                    const MessageSpec& message) {
  LACONIC_ASSERT(unpacks_on_device(out.spec, message), spec_.name);
  if (goes_by_sample(spec_, message)) return unpack_samples_on_device(bytes, out, message);
  const Frame frame = read_expected(*bytes, frame_header(spec_, step_, message, out.spec));
  check_payload(frame.header.codec, out.spec, frame.payload);
  decode_on_device({frame, bytes}, {.dtype = out.spec.dtype, .out = out.data});
  return {};
}

// Requires: the payload passed check_payload().
void Receiver::decode_on_device(const SharedFrame& shared, const DeviceSink& sink) {
  const Frame& frame = shared.frame;
  const auto& [codec, tensor] = std::tie(frame.header.codec, frame.header.tensor);
  const DeviceBuffer staged = uploads_.upload(codec, tensor, frame.payload, shared.message);
  const DeviceBuffer scratch(device_scratch_bytes(codec, tensor));
  device_decode(codec, tensor, staged.data(), {.seed = payload_seed(codec, frame.payload)}, sink,
                scratch.data(), codec_stream());
}

}  // namespace laconic
