// link/device_message.hpp — a message that a GPU is encoding, and tensors in its memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

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

  // Stages a payload and queues its copy on the codec stream.
  // Requires: the payload passed check_payload().
  DeviceBuffer upload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload);

 private:
  std::deque<std::pair<std::unique_ptr<PinnedBuffer>, DeviceEvent>> queued_;
};

// The tensor must live until is_ready(). Any one thread may ask, wait and finish.
class DeviceMessage {
 public:
  // Copies the staged payload to the host, behind all that is queued on the codec stream.
  DeviceMessage(FrameHeader header, const DeviceBuffer& staged);

  bool is_ready() const { return copied_.is_done(); }
  void wait() const { copied_.wait(); }
  // The frame. Requires: is_ready(), or wait() has returned.
  Bytes finish() const;

 private:
  FrameHeader header_;
  std::unique_ptr<PinnedBuffer> staged_;
  DeviceEvent copied_;
};

}  // namespace laconic
