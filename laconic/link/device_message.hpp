// link/device_message.hpp — a message that a GPU is encoding, and tensors in its memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/device_memory.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

// A contiguous tensor in device memory, not owned. What makes it and what uses it is ordered with
// the codec stream by the caller (enter_codec_stream, leave_codec_stream).
struct ConstDeviceTensor {
  const TensorSpec& spec;
  const void* data;
};
struct DeviceTensor {
  const TensorSpec& spec;
  void* data;
};

// Pinned memory that the GPU still copies from.
class Uploads {
 public:
  Uploads() = default;
  ~Uploads();  // waits until it no longer does
  Uploads(Uploads&&) = default;
  Uploads& operator=(Uploads&&) = default;

  // Queue a copy on the codec stream: of a payload, which is staged, or of bytes as they are.
  // Requires, for the first: the payload passed check_payload().
  DeviceBuffer upload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload);
  DeviceBuffer upload(ByteView bytes);

 private:
  struct Upload {
    std::unique_ptr<PinnedBuffer> memory;
    DeviceEvent copied;
  };
  DeviceBuffer queue(std::unique_ptr<PinnedBuffer> memory);
  std::deque<Upload> queued_;
};

// Bytes on their way from the GPU to pinned memory of the host, behind all that was queued on the
// codec stream.
class HostCopy {
 public:
  HostCopy(const std::byte* device, std::uint64_t bytes);
  ~HostCopy();  // waits until the GPU no longer writes
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = delete;

  bool is_ready() const { return copied_.is_done(); }
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const { copied_.wait(limit); }
  // Requires: is_ready(), or wait() has returned.
  ByteView bytes() const { return {memory_->data(), memory_->size()}; }
  std::byte* data() { return memory_->data(); }

 private:
  std::unique_ptr<PinnedBuffer> memory_;
  DeviceEvent copied_;
};

// The tensor must live until is_ready(). Any one thread may ask, wait and finish.
class DeviceMessage {
 public:
  // Copies the staged payload to the host.
  DeviceMessage(FrameHeader header, const DeviceBuffer& staged);

  bool is_ready() const { return staged_.is_ready(); }
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const { staged_.wait(limit); }
  // The frame. Requires: is_ready(), or wait() has returned.
  Bytes finish() const;

 private:
  FrameHeader header_;
  HostCopy staged_;
};

}  // namespace laconic
