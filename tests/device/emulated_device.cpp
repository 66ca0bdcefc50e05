#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "laconic/codec/device_memory.hpp"
#include "tests/device/test_device.hpp"

// Device memory is host memory here, and kernels have run when they are queued. Copies are as late
// as a GPU's may be: what goes to the host arrives when somebody waits for an event behind it, and
// what comes from there must not have changed until then.
namespace laconic {

namespace {

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

void finish_until(const void* event) {
  LateCopies& copies = late_copies();
  const std::lock_guard lock(copies.mutex);
  finish_copies([&](const LateCopy& copy) {
    return copy.number <= *static_cast<const std::uint64_t*>(event);
  });
}

}  // namespace

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
  LateCopies& copies = late_copies();
  const std::lock_guard lock(copies.mutex);
  for (const LateCopy& copy : copies.queued)
    EXPECT_FALSE(copy.touches(data_, size_)) << "pinned memory is freed before it is copied";
  std::free(data_);
}

DeviceEvent::DeviceEvent() {
  LateCopies& copies = late_copies();
  const std::lock_guard lock(copies.mutex);
  event_ = std::make_shared<std::uint64_t>(copies.last);
}

bool DeviceEvent::is_done() const {
  finish_until(event_.get());
  return true;
}

void DeviceEvent::wait() const {
  finish_until(event_.get());
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
