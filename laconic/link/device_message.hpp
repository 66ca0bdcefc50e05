// link/device_message.hpp — a message that a GPU is encoding, and tensors in its memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

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
  void upload(ByteView bytes, std::byte* device);

 private:
  std::unique_ptr<PinnedBuffer> take(std::uint64_t bytes);
  void queue(std::unique_ptr<PinnedBuffer> pinned, std::byte* device);

  std::deque<std::pair<std::unique_ptr<PinnedBuffer>, DeviceEvent>> queued_;
};

// Memory of the device that is on its way to the host, in parts at multiples of 16 bytes. Any one
// thread may ask and wait once all is copied; before, it belongs to who fills it.
class Download {
 public:
  explicit Download(std::uint64_t most_bytes) : device_((most_bytes + 15) / 16 * 16) {}
  ~Download();  // waits until the device no longer copies
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  // Returns where the part begins. Requires: there is room for it.
  std::uint64_t take(std::uint64_t bytes);
  std::byte* device(std::uint64_t at) const { return device_.data() + at; }
  // Copies all parts behind all that is queued on the codec stream, and gives the device's memory
  // back: there are no further ones.
  void close();
  bool is_done() const { return copies_.empty() || copies_.back().copied.is_done(); }
  void wait() const;
  // The part on the host. Waits for it, and copies it if nobody has asked for that.
  const std::byte* host(std::uint64_t at);

 private:
  void copy();

  struct Copy {
    std::uint64_t begin = 0;
    std::unique_ptr<PinnedBuffer> pinned;
    DeviceEvent copied;
  };
  DeviceBuffer device_;
  std::uint64_t taken_ = 0, copied_ = 0;
  std::vector<Copy> copies_;
};

// The tensor must live until is_ready(). Any one thread may ask, wait and finish.
class DeviceMessage {
 public:
  // One frame, whose payload is staged at a part of the download.
  struct Part {
    FrameHeader header;
    std::uint64_t at = 0;
  };
  // Copies what is staged to the host, behind all that is queued on the codec stream.
  DeviceMessage(std::shared_ptr<Download> download, std::vector<Part> parts);

  bool is_ready() const { return download_->is_done(); }
  void wait() const { download_->wait(); }
  // The frames. Requires: is_ready(), or wait() has returned.
  Bytes finish() const;

 private:
  std::shared_ptr<Download> download_;
  std::vector<Part> parts_;
};

}  // namespace laconic
