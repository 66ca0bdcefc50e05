// tests/device/test_device.hpp — memory of a device, for tests that run on a GPU and on the
// emulator.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>

#include "laconic/codec/device_memory.hpp"

namespace laconic::test {

// Why the tests cannot run here, in the words of tensor/test_gpu.hpp; empty if they can.
std::string no_device_reason();

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_device_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }
};
// How many random cases are worth the time.
int device_cases();
// The largest tensors of random cases.
std::size_t device_elements();

void* device_allocate(std::size_t bytes);
void device_free(void* memory);
// So that a sanitizer sees who touches it, and the other way round; nothing on a GPU.
void forbid(void* device, std::size_t bytes);
void allow(void* device, std::size_t bytes);
void to_device(void* device, const void* host, std::size_t bytes);
void from_device(void* host, const void* device, std::size_t bytes);  // after all work

// A stream beside the codecs' one that brings something to the device, as a GPU that still computes
// it: from hold() on it stands still until it is opened. open() asks CUDA for nothing, since other
// threads may be in calls of CUDA that wait for all streams.
class HeldStream {
 public:
  HeldStream(void* device, std::size_t bytes);
  ~HeldStream();
  Stream stream() const;
  void hold();
  void open(const void* host);  // brings these bytes

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// --- of the emulator alone

// How often anybody asked for a device.
std::uint64_t device_calls();
// In buffers now; the most that was pinned since this was last asked.
std::uint64_t device_bytes();
std::uint64_t pinned_bytes();
std::uint64_t most_pinned_bytes();
// While it lives, events of the codec stream are not done.
class StuckDevice {
 public:
  StuckDevice();
  ~StuckDevice();
};

// ---

// Memory of a device, filled with rubbish, with guards around it that the destructor looks at.
class TestBuffer {
 public:
  explicit TestBuffer(std::size_t bytes, std::size_t offset = 0);
  ~TestBuffer();
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_, offset_;
  std::byte* memory_;
  void* data_;
};

}  // namespace laconic::test
