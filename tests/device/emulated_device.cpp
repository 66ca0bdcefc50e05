#include <cstdlib>
#include <cstring>

#include "laconic/codec/device_memory.hpp"
#include "tests/device/test_device.hpp"

// Device memory is host memory here, and all work is done when it is queued.
namespace laconic {

Stream codec_stream() {
  return nullptr;
}

void enter_codec_stream(Stream) {}

void leave_codec_stream(Stream) {}

DeviceBuffer::DeviceBuffer(std::uint64_t bytes) : size_(bytes) {
  if (bytes > 0) data_ = static_cast<std::byte*>(test::device_allocate(bytes));
  if (bytes > 0) std::memset(data_, 0xA5, bytes);
}

void DeviceBuffer::release() {
  std::free(data_);
  data_ = nullptr;
  size_ = 0;
}

PinnedBuffer::PinnedBuffer(std::uint64_t bytes)
    : data_(static_cast<std::byte*>(test::device_allocate(bytes))), size_(bytes) {}

PinnedBuffer::~PinnedBuffer() {
  std::free(data_);
}

DeviceEvent::DeviceEvent() = default;

bool DeviceEvent::is_done() const {
  return true;
}

void DeviceEvent::wait() const {}

void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host) {
  test::from_device(host, device, bytes);
}

void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device) {
  test::to_device(device, host, bytes);
}

}  // namespace laconic

namespace laconic::test {

const char* no_device_reason() {
  return nullptr;
}

int device_cases() {
  return 250;
}

std::size_t device_elements() {
  return 3000;
}

void* device_allocate(std::size_t bytes) {
  return std::aligned_alloc(256, bytes / 256 * 256 + 256);
}

void device_free(void* memory) {
  std::free(memory);
}

void to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void from_device(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace laconic::test
