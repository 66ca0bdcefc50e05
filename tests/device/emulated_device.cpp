#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "laconic/base/test_effort.hpp"
#include "laconic/codec/device_memory.hpp"
#include "tests/device/test_device.hpp"

// Device memory is host memory here, and kernels have run when they are queued. Copies are as late
// as a GPU's may be: what goes to the host arrives when an event behind it is done, and what comes
// from there must not have changed until then. An event is done after some asking, and one of a
// held stream only when that is opened.
namespace laconic {

namespace {

std::atomic<std::uint64_t> calls = 0;
std::atomic<bool> is_stuck = false;
std::atomic<std::uint64_t> pinned = 0, most_pinned = 0, allocated = 0;

struct EmulatedEvent {
  const std::atomic<bool>* is_open = nullptr;  // null: of the codec stream
  std::atomic<int> asked = 0;
  std::uint64_t copies = 0;  // how many were queued before it
};

struct LateCopy {
  std::uint64_t number = 0;
  std::byte* host = nullptr;
  std::vector<std::byte> bytes;
  bool is_to_host = false;

  bool touches(const std::byte* at, std::uint64_t size) const {
    return at < host + bytes.size() && host < at + size;
  }
  void finish() const {
    if (is_to_host)
      std::memcpy(host, bytes.data(), bytes.size());
    else
      EXPECT_EQ(std::memcmp(host, bytes.data(), bytes.size()), 0)
          << bytes.size() << " bytes changed before the device had them";
  }
};

struct LateCopies {
  std::mutex mutex;
  std::deque<LateCopy> queued;
  std::uint64_t last = 0;
};

LateCopies& late_copies() {
  static LateCopies copies;
  return copies;
}

void queue_copy(std::byte* host, const std::byte* from, std::uint64_t bytes, bool is_to_host) {
  if (bytes == 0) return;
  LateCopies& copies = late_copies();
  copies.queued.push_back({++copies.last, host, {from, from + bytes}, is_to_host});
}

// In order, up to the last that `is_wanted`. Requires: the mutex is locked.
template <class IsWanted>
void finish_copies(const IsWanted& is_wanted) {
  std::deque<LateCopy>& queued = late_copies().queued;
  const auto last = std::find_if(queued.rbegin(), queued.rend(), is_wanted);
  for (auto left = queued.rend() - last; left > 0; --left) {
    queued.front().finish();
    queued.pop_front();
  }
}

void finish_until(std::uint64_t number) {
  const std::lock_guard lock(late_copies().mutex);
  finish_copies([&](const LateCopy& copy) { return copy.number <= number; });
}

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
  LateCopies& copies = late_copies();
  const std::lock_guard lock(copies.mutex);
  for (const LateCopy& copy : copies.queued)
    EXPECT_FALSE(copy.touches(data_, size_)) << "pinned memory is freed before it is copied";
  pinned -= size_;
  std::free(data_);
}

DeviceEvent::DeviceEvent() : DeviceEvent(codec_stream()) {}

DeviceEvent::DeviceEvent(Stream stream) {
  ++calls;
  auto event = std::make_shared<EmulatedEvent>();
  event->is_open = static_cast<const std::atomic<bool>*>(stream);
  const std::lock_guard lock(late_copies().mutex);
  event->copies = late_copies().last;
  event_ = std::move(event);
}

bool DeviceEvent::is_done() const {
  constexpr int kAsked = 3;
  auto& event = *static_cast<EmulatedEvent*>(event_.get());
  if (event.is_open != nullptr) return *event.is_open;
  if (is_stuck || ++event.asked <= kAsked) return false;
  finish_until(event.copies);
  return true;
}

void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host) {
  const std::lock_guard lock(late_copies().mutex);
  queue_copy(host, device, bytes, /*is_to_host=*/true);
}

// Behind the copies to the same memory that were queued before.
void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device) {
  const std::lock_guard lock(late_copies().mutex);
  finish_copies([&](const LateCopy& copy) { return copy.is_to_host && copy.touches(host, bytes); });
  if (bytes > 0) std::memcpy(device, host, bytes);
  queue_copy(const_cast<std::byte*>(host), host, bytes, /*is_to_host=*/false);
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
  void* device;
  std::size_t bytes;
  std::atomic<bool> is_open = false;
};

HeldStream::HeldStream(void* device, std::size_t bytes) : body_(new Body{device, bytes}) {}

HeldStream::~HeldStream() = default;

Stream HeldStream::stream() const {
  return &body_->is_open;
}

void HeldStream::hold() {}

void HeldStream::open(const void* host) {
  to_device(body_->device, host, body_->bytes);
  body_->is_open = true;
}

int device_cases() {
  return is_thorough() ? 1000 : 100;
}

std::size_t device_elements() {
  return 3000;
}

// No more than was asked for, so that asan sees who reads beyond it; but a GPU has whole sixteens.
void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  return ::posix_memalign(&memory, 256, (bytes + 15) / 16 * 16) == 0 ? memory : nullptr;
}

void device_free(void* memory) {
  std::free(memory);
}

void from_device(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace laconic::test
