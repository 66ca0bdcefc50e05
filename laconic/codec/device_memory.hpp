// codec/device_memory.hpp — memory of a GPU, pinned memory of the host, and the order of work.
//
// All of it goes by one stream of the process, the codec stream, beside those that compute: it
// waits for others by enter(), and others for it by leave(), on the device; the host asks a
// DeviceEvent. What waits in the codec stream holds up all messages behind it, so whoever can ask
// an event of the other stream does that instead. Device buffers are made and freed in the order of
// the codec stream, so one may go while work that uses it is still queued. Both kinds of memory are
// kept and used again (room_pool.hpp).
//
// From the first use of the codec stream on, large buffers of bytes (base/bytes.hpp) lie in pinned
// memory, too, so that frames go to the device and come from it as they are.
//
// In builds without CUDA all of it throws ConfigError; what CUDA refuses is a GpuError.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "laconic/codec/device_codec.hpp"
#include "laconic/codec/room_pool.hpp"

namespace laconic {

// Makes its device that of the calling thread: before anything else of a thread that asks CUDA, or
// the first device would get a context of every process.
Stream codec_stream();
// What is queued on `other` so far comes before what is queued on the codec stream from here on;
// and the other way round.
void enter_codec_stream(Stream other);
void leave_codec_stream(Stream other);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::uint64_t bytes);
  ~DeviceBuffer() {
    if (data_ != nullptr) release();  // an empty one is everywhere, and asks no device
  }
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
  void release() noexcept;
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Memory of the host that the device copies to and from by itself. Requires: by then it no longer
// does, when this is destroyed.
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

// A GPU may use it for ever, so it serves nobody any more.
void lose(std::shared_ptr<const void> memory) noexcept;

// How long a GPU may stand still before a wait for it gives up, where nobody says otherwise.
inline constexpr std::chrono::milliseconds kGpuDeadline{60'000};

// A point in a stream: all that was queued there when it was made. What is known of one of the
// codec stream others need not ask (stream_progress.hpp).
class DeviceEvent {
 public:
  DeviceEvent();  // of the codec stream
  // Requires: the stream is not being recorded as a graph.
  explicit DeviceEvent(Stream stream);
  bool is_done() const;  // throws GpuError when work before it failed
  // Throws Timeout when the GPU has not come that far within the limit.
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const;
  // For destructors: waits a few seconds, but not again after the GPU stood still. Returns whether
  // it is done.
  bool wait_quietly() const noexcept;

 private:
  std::shared_ptr<void> event_;
  std::uint64_t number_ = 0;  // among those of the codec stream; 0: of another
};

// What must be done before a buffer may be touched; nothing, for one in host memory.
using Ready = std::optional<DeviceEvent>;

// In the order of the codec stream. Host memory should be pinned: otherwise they wait.
void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host);
void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device);

}  // namespace laconic
