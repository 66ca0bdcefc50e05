// link/device_sample.hpp — what both ends of a delta link do alike on a GPU; only they include
// this. See link/sample.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "laconic/codec/device_memory.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/store/delta_store.hpp"
#include "laconic/store/reference_record.hpp"

namespace laconic {

// Whether a record is sound, as a GPU says it: a part of a Download, that much of it.
inline constexpr std::uint64_t kMarkBytes = 16;

// One reference on its way from a stored record to the next, in the order of the codec stream. f32
// records in the GPU's memory are used where they lie, others by way of scratch.
class DeviceReferenceUpdate {
 public:
  DeviceReferenceUpdate(Reference kind, std::uint64_t count, const DeltaStore::Room& room);
  // The record as f32. It may be `after`, too. Call it once, before after() is written.
  const float* before(const DeltaStore::Record& record);
  float* after() const { return after_; }
  // Writes the record. Sets *is_unsound, if there is one, when rounding made an infinity.
  void finish(std::uint32_t* is_unsound);

 private:
  Reference kind_;
  std::uint64_t count_;
  DeltaStore::Room room_;
  DeviceBuffer old_, new_, floats_;  // empty: not needed
  std::byte* record_;
  float* after_;
};

// The flag that a part of a Download begins with. Waits for it.
bool is_marked(Download& download, std::uint64_t at);

// As is_finite(), of a payload in its staged form.
bool is_staged_finite(const CodecSpec& codec, const TensorSpec& tensor, const std::byte* staged);

}  // namespace laconic
