// link/device_message.hpp — a message that a GPU is encoding, and tensors in its memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
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
  Uploads& operator=(Uploads&&) noexcept;

  // Queue a copy on the codec stream: of a payload, which is staged, or of bytes as they are.
  // Requires, for the first: the payload passed check_payload(); it is part of the message, which
  // nobody changes until the copy is done, where it can go as it lies there.
  DeviceBuffer upload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                      const SharedBytes& message);
  DeviceBuffer upload(ByteView bytes);
  void upload(ByteView bytes, std::byte* device);

 private:
  void forget_copied();
  void queue(std::shared_ptr<const void> memory, ByteView bytes, std::byte* device);

  struct Upload {
    std::shared_ptr<const void> memory;
    DeviceEvent copied;
  };
  std::deque<Upload> queued_;
};

// Bytes on their way from the GPU to pinned memory of the host, behind all that was queued on the
// codec stream.
class HostCopy {
 public:
  HostCopy(const std::byte* device, std::uint64_t bytes);
  ~HostCopy();  // waits until the GPU no longer uses it
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = delete;

  bool is_ready() const { return copied_.is_done(); }
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const { copied_.wait(limit); }
  // Requires: is_ready(), or wait() has returned.
  ByteView bytes() const { return {memory_->data(), memory_->size()}; }
  std::byte* data() { return memory_->data(); }
  // Queues the way back. Requires: as bytes(); they change no more until is_ready().
  void send_back(std::byte* device);

 private:
  std::unique_ptr<PinnedBuffer> memory_;
  DeviceEvent copied_;
};

// A frame whose payload the GPU copies to where it lies in the frame.
class FrameCopy {
 public:
  // `frame` is open, with room for the payload. Requires: is_from_source(*frame).
  FrameCopy(std::shared_ptr<Bytes> frame, std::span<std::byte> room, const std::byte* device);
  ~FrameCopy();  // as HostCopy
  FrameCopy(FrameCopy&&) = default;
  FrameCopy& operator=(FrameCopy&&) = delete;

  bool is_ready() const { return copied_.is_done(); }
  void wait(std::chrono::milliseconds limit) const { copied_.wait(limit); }
  // Gives the frame away, closed; once. Requires: is_ready(), or wait() has returned.
  std::shared_ptr<Bytes> finish();

 private:
  std::shared_ptr<Bytes> frame_;
  std::size_t payload_bytes_ = 0;
  DeviceEvent copied_;
};

// Memory of the device that is on its way to the host, in parts at multiples of 16 bytes. Any one
// thread may ask and wait once all is copied; before, it belongs to who fills it.
class Download {
 public:
  explicit Download(std::uint64_t most_bytes) : device_((most_bytes + 15) / 16 * 16) {}
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  // Returns where the part begins. Requires: there is room for it.
  std::uint64_t take(std::uint64_t bytes);
  std::byte* device(std::uint64_t at) const { return device_.data() + at; }
  // Copies all parts behind all that is queued on the codec stream, and gives the device's memory
  // back: there are no further ones.
  void close();
  // Instead of close(), where whoever needs the bytes has copied them.
  void close_copied() { device_ = {}; }
  std::uint64_t bytes() const { return taken_; }
  bool is_done() const { return copies_.empty() || copies_.back().host.is_ready(); }
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const;
  // The part on the host. Waits for it, and copies it if nobody has asked for that.
  const std::byte* host(std::uint64_t at);

 private:
  void copy();

  struct Copy {
    std::uint64_t begin = 0;
    HostCopy host;
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
  // Copies what is staged to the host, behind all that is queued on the codec stream. A single part
  // is all that anybody wants of its download.
  DeviceMessage(std::shared_ptr<Download> download, std::vector<Part> parts);
  DeviceMessage(std::shared_ptr<Download> download, const Part& part);

  std::uint64_t pinned_bytes() const { return download_->bytes(); }
  bool is_ready() const { return frame_ ? frame_->is_ready() : download_->is_done(); }
  void wait(std::chrono::milliseconds limit = kGpuDeadline) const {
    frame_ ? frame_->wait(limit) : download_->wait(limit);
  }
  // Gives the frames away; once. Requires: is_ready(), or wait() has returned.
  std::shared_ptr<Bytes> finish();

 private:
  std::shared_ptr<Download> download_;
  std::vector<Part> parts_;
  std::optional<FrameCopy> frame_;  // instead of parts
};

}  // namespace laconic
