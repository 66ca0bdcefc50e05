#include <atomic>
#include <cstdlib>
#include <cstring>

#include "laconic/codec/device_memory.hpp"
#include "tests/device/test_device.hpp"

// Device memory is host memory here, and all work is done when it is queued. But who asks is told
// so after some asking, and of a held stream only when it is opened.
namespace laconic {

namespace {

std::atomic<std::uint64_t> calls = 0;
std::atomic<bool> is_stuck = false;
std::atomic<std::uint64_t> pinned = 0, most_pinned = 0, allocated = 0;

struct EmulatedEvent {
  const std::atomic<bool>* is_open = nullptr;  // null: of the codec stream
  std::atomic<int> asked = 0;
};

}  // namespace

Stream codec_stream() {
  ++calls;
  return nullptr;
}

void enter_codec_stream(Stream) {
  ++calls;
}

void leave_codec_stream(Stream) {
  ++calls;
}

DeviceBuffer::DeviceBuffer(std::uint64_t bytes) : size_(bytes) {
  if (bytes > 0) ++calls;
  allocated += bytes;
  if (bytes > 0) data_ = static_cast<std::byte*>(test::device_allocate(bytes));
  if (bytes > 0) std::memset(data_, 0xFF, bytes);  // no number at all
}

void DeviceBuffer::release() noexcept {
  ++calls;
  allocated -= size_;
  std::free(data_);
  data_ = nullptr;
  size_ = 0;
}

PinnedBuffer::PinnedBuffer(std::uint64_t bytes)
    : data_(static_cast<std::byte*>(test::device_allocate(bytes))), size_(bytes) {
  ++calls;
  const std::uint64_t now = pinned += bytes;
  for (std::uint64_t most = most_pinned; now > most;)
    if (most_pinned.compare_exchange_weak(most, now)) break;
}

PinnedBuffer::~PinnedBuffer() {
  pinned -= size_;
  std::free(data_);
}

DeviceEvent::DeviceEvent() : DeviceEvent(codec_stream()) {}

DeviceEvent::DeviceEvent(Stream stream) {
  ++calls;
  auto event = std::make_shared<EmulatedEvent>();
  event->is_open = static_cast<const std::atomic<bool>*>(stream);
  event_ = std::move(event);
}

bool DeviceEvent::is_done() const {
  constexpr int kAsked = 3;
  auto& event = *static_cast<EmulatedEvent*>(event_.get());
  if (event.is_open != nullptr) return *event.is_open;
  return !is_stuck && ++event.asked > kAsked;
}

void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host) {
  test::from_device(host, device, bytes);
}

void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device) {
  test::to_device(device, host, bytes);
}

}  // namespace laconic

namespace laconic::test {

std::string no_device_reason() {
  return "";
}

std::uint64_t device_calls() {
  return calls;
}

std::uint64_t device_bytes() {
  return allocated;
}

std::uint64_t pinned_bytes() {
  return pinned;
}

std::uint64_t most_pinned_bytes() {
  return most_pinned.exchange(0);
}

StuckDevice::StuckDevice() {
  is_stuck = true;
}

StuckDevice::~StuckDevice() {
  is_stuck = false;
}

struct HeldStream::Body {
  std::atomic<bool> is_open = false;
};

HeldStream::HeldStream() : body_(std::make_unique<Body>()) {}

HeldStream::~HeldStream() = default;

Stream HeldStream::stream() const {
  return &body_->is_open;
}

void HeldStream::open() {
  body_->is_open = true;
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
