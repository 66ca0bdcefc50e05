// codec/device_memory.hpp — memory of a GPU, pinned memory of the host, and the order of work.
//
// All of it goes by one stream of the process, the codec stream, beside those that compute: it
// waits for others by enter(), and others for it by leave(), on the device; the host asks a
// DeviceEvent. Device buffers are made and freed in the order of that stream, so one may go while
// work that uses it is still queued. Pinned memory is kept and used again.
//
// In builds without CUDA all of it throws ConfigError. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "laconic/codec/device_codec.hpp"

namespace laconic {

Stream codec_stream();
// What is queued on `other` so far comes before what is queued on the codec stream from here on;
// and the other way round.
void enter_codec_stream(Stream other);
void leave_codec_stream(Stream other);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::uint64_t bytes);
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer gone(std::move(*this));
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  std::uint32_t* flag() const { return reinterpret_cast<std::uint32_t*>(data_); }
  std::uint64_t size() const { return size_; }
  bool is_empty() const { return size_ == 0; }

 private:
  void release();
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Memory of the host that the device copies to and from by itself.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::uint64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0, room_ = 0;
};

// A point in the codec stream: when it was made.
class DeviceEvent {
 public:
  DeviceEvent();
  bool is_done() const;  // throws std::runtime_error when work before it failed
  void wait() const;

 private:
  std::shared_ptr<void> event_;
};

// In the order of the codec stream. Host memory should be pinned: otherwise they wait.
void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host);
void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device);

}  // namespace laconic
