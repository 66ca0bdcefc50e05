// collective/walk.hpp — one lane of one operation: elements and codecs on the way through a plan.
//
// What takes time is done once: a raw addend is added from the message where it
// arrived, the first addend of a sum is the sum, and a sum that the member's own
// values have joined goes on in the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "laconic/collective/hop_walk.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/engine/meter.hpp"
#include "laconic/link/link.hpp"

namespace laconic {

// What a lane is from operation to operation.
struct Lane {
  std::vector<Slice> slices;              // by chunk, as the rest
  std::vector<TensorSpec> tensors;        // 1-D
  std::vector<std::optional<Sender>> up;  // where this member encodes
  std::optional<Sender> down;             // where it encodes a result, at most one chunk
};

// What the lanes of an operation have in common.
struct OperationState {
  const CollectiveSpec& spec;
  const std::vector<Hop>& hops;
  std::byte* buffer = nullptr;
  DeadlineKey key = 0;
  std::uint64_t operation = 0;  // counted over all steps: in tags
  std::uint64_t sequence = 0;   // of all its frames
  bool exact = false;
  PayloadObserver observer = {};
  Times spent;
  Bytes scratch;
  Uploads uploads;                  // when the buffer is in device memory
  std::uint64_t packing_bytes = 0;  // pinned memory that a GPU is writing, for all lanes

  // So much keeps a GPU busy between two looks at it; more would only take pinned memory.
  static constexpr std::uint64_t kMostPacking = std::uint64_t{4} << 20;
  bool may_pack() const { return packing_bytes < kMostPacking; }
};

class LaneWalk {
 public:
  LaneWalk(OperationState& state, Lane& lane, std::uint32_t part);

  // Goes as far as it can without waiting; true at the end. Throws WireError naming the sender.
  bool advance(Engine& engine);
  std::size_t at() const { return walk_.at(); }  // index of the next hop
  // Whether it went no further because a GPU has not packed a message yet, or has enough to do.
  bool waits_for_gpu() const { return waits_for_gpu_; }
  // Requires: not at the end, and does not wait for a GPU.
  Rank waits_for() const { return walk_.waits_for(); }

  // For HopWalk.
  bool act(const Hop& hop);
  Outgoing message(const Hop& hop);
  void take(const Hop& hop, Bytes bytes);

 private:
  struct Sum {
    std::shared_ptr<Bytes> bytes;
    std::size_t offset = 0;     // of the elements in them
    bool is_in_values = false;  // instead
    DeviceBuffer device;        // instead, when the buffer is in device memory
    bool is_empty() const { return bytes == nullptr && !is_in_values && device.is_empty(); }
  };

  std::uint64_t raw_bytes_of(const TensorSpec& what) const;
  // Those that return false do so because of pack(), and have done nothing.
  bool dispatch(const Hop& hop);
  bool encode(int chunk);
  bool encode_result(int chunk);
  bool encode_for_all(int chunk);
  bool encode_shared(Sender& sender, const CodecSpec& its_codec, int chunk);
  void store(int chunk);
  void add(int chunk);
  void add_decoded(int chunk);
  void add_on_device(int chunk);
  void decode_on_device(const CodecSpec& codec, ByteView payload, int chunk, Delivery kind,
                        std::byte* to);
  // Into the buffer.
  void decode_values(const CodecSpec& codec, ByteView payload, int chunk);
  void add_sum_to_values(int chunk);
  bool add_own(int chunk);
  void finish_sum(int chunk);
  void end();

  // Where payloads are added.
  void add_payload_of(int chunk, ByteView payload);
  bool hold(int chunk);

  void show(const CodecSpec& codec, int chunk, ByteView payload) const;

  MessageSpec message_spec() const;
  FrameHeader header_of(const CodecSpec& codec, int chunk) const;
  const CodecSpec& codec_of_message() const;
  const TensorSpec& tensor(int chunk) const;
  std::byte* values(int chunk) const;
  // Whether what receivers decode takes the place of the values, if a GPU packs them.
  enum class Place { kept, replaced };
  // Null: a GPU has to work on it first; ask again.
  std::shared_ptr<Bytes> pack(Sender& sender, int chunk, Place place = Place::kept);
  void start_packing(Sender& sender, int chunk, Place place);
  std::shared_ptr<Bytes> finish_packing(Sender& sender, int chunk);
  bool is_packed() const;
  std::shared_ptr<Bytes> take_message();

  OperationState& state_;
  Lane& lane_;
  HopWalk walk_;
  const bool adds_payloads_;
  // While a GPU packs a message, or copies what the host must pack: one of them.
  std::optional<DeviceMessage> packing_;
  std::optional<HostCopy> copying_;
  std::uint64_t packing_bytes_ = 0;  // of the one
  bool waits_for_gpu_ = false;
  bool is_replaced_ = false;  // the values that were packed, by what was decoded
  std::shared_ptr<Bytes> message_;
  bool is_sent_ = false;  // so that nobody may change it
  Frame frame_;           // of a message that came
  Sum sum_;
  // Where payloads are added: the frame of what this member has of a chunk.
  std::shared_ptr<Bytes> held_;
  int held_chunk_ = kNoChunk;
  bool is_decoded_ = true;  // false: the buffer does not have the sum that is held
};

}  // namespace laconic
