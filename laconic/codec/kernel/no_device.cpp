#include "laconic/base/error.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/codec/device_memory.hpp"
#include "laconic/codec/kernel/factor_batch.hpp"

namespace laconic {

namespace {

[[noreturn]] void refuse_device() {
  throw ConfigError(
      "this program was built without CUDA: codecs run on the CPU alone (LACONIC_CUDA=ON builds "
      "them for GPUs)");
}

}  // namespace

bool has_device_codecs() {
  return false;
}

bool has_hollow_codecs() {
  return false;
}

std::uint64_t device_scratch_bytes(const CodecSpec&, const TensorSpec&) {
  refuse_device();
}

void device_encode(const CodecSpec&, const TensorSpec&, const DeviceSource&, const DeviceInput&,
                   std::byte*, std::byte*, Stream) {
  refuse_device();
}

void device_decode(const CodecSpec&, const TensorSpec&, const std::byte*, const DeviceInput&,
                   const DeviceSink&, std::byte*, Stream) {
  refuse_device();
}

void kernel::device_clear(void*, std::uint64_t, Stream) {
  refuse_device();
}

void kernel::device_copy(const void*, std::uint64_t, void*, Stream) {
  refuse_device();
}

void kernel::device_settle(const std::uint32_t*, const float*, float*, std::uint64_t, Stream) {
  refuse_device();
}

void kernel::device_tell_sound(const std::uint32_t*, std::uint32_t*, Stream) {
  refuse_device();
}

void kernel::device_widen(Dtype, const std::byte*, std::uint64_t, const DeviceSink&, Stream) {
  refuse_device();
}

void kernel::device_begin_factors(const BatchStep&, float*, Stream) {
  refuse_device();
}

void kernel::device_project_factors(const BatchStep&, float*, Stream) {
  refuse_device();
}

void kernel::device_finish_factors(const BatchStep&, const float*, const float*, std::uint64_t,
                                   Stream) {
  refuse_device();
}

void kernel::device_check_finite(Dtype, const std::byte*, std::uint64_t, std::uint32_t*, Stream) {
  refuse_device();
}

Stream codec_stream() {
  refuse_device();
}

void enter_codec_stream(Stream) {
  refuse_device();
}

void leave_codec_stream(Stream) {
  refuse_device();
}

DeviceBuffer::DeviceBuffer(std::uint64_t bytes) {
  if (bytes > 0) refuse_device();
}

void DeviceBuffer::release() noexcept {}

PinnedBuffer::PinnedBuffer(std::uint64_t) {
  refuse_device();
}

PinnedBuffer::~PinnedBuffer() = default;

DeviceEvent::DeviceEvent() {
  refuse_device();
}

DeviceEvent::DeviceEvent(Stream) {
  refuse_device();
}

bool DeviceEvent::is_done() const {
  refuse_device();
}

void copy_to_host(const std::byte*, std::uint64_t, std::byte*) {
  refuse_device();
}

void copy_to_device(const std::byte*, std::uint64_t, std::byte*) {
  refuse_device();
}

}  // namespace laconic
