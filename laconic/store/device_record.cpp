// Records of a DeltaStore for a GPU: where they lie, and how they come from one place to another.
#include <cstring>
#include <utility>

#include "laconic/codec/device_memory.hpp"
#include "laconic/store/delta_store.hpp"

namespace laconic {

std::optional<DeltaStore::Record> DeltaStore::find_for_device(std::uint64_t key) {
  use_device();
  const Newest found = newest(key);
  if (found.bytes == nullptr) return std::nullopt;
  bring_to_pinned(found);
  return record_of(*found.bytes, found.visits);
}

// A step holds old and new values at once. What finds the budget full meanwhile goes to pinned
// memory, and comes back when it is staged in a step that does not.
std::optional<DeltaStore::Room> DeltaStore::stage_for_device(std::uint64_t key,
                                                             std::uint32_t visits,
                                                             bool is_compared) {
  use_device();
  const bool has_room =
      (pool_.in_use(RecordPlace::device) + 1) * spec_.record_bytes <= spec_.device_bytes;
  const RecordPlace place = has_room && !is_compared ? RecordPlace::device : RecordPlace::pinned;
  const RecordBuffer* const room = stage_at(key, visits, place);
  if (room == nullptr) return std::nullopt;
  return Room{{room->get(), spec_.record_bytes}, place};
}

void DeltaStore::mark_queued() {
  queued_ = std::make_unique<DeviceEvent>();
}

void DeltaStore::use_device() {
  if (!std::exchange(is_on_device_, true)) pool_.free_host_buffers();
  has_device_work_ = true;
  queued_ = nullptr;
}

void DeltaStore::await_device() {
  if (!has_device_work_) return;
  if (!queued_) mark_queued();
  queued_->wait();
  queued_ = nullptr;
  has_device_work_ = false;
}

// A stored value that leaves the GPU must be in the file before it may leave RAM.
void DeltaStore::bring_to_host(const Newest& newest) {
  RecordBuffer& bytes = *newest.bytes;
  if (bytes.place() == RecordPlace::pinned && newest.is_staged) await_device();
  if (bytes.place() != RecordPlace::device) return;
  RecordBuffer copied = copied_to_pinned(bytes);
  pool_.give(std::exchange(bytes, std::move(copied)));
  if (newest.is_staged || !queue_) return;
  newest.node->second.ticket =
      queue_->submit({RecordJob::Kind::write, newest.node->second.slot, bytes.get()});
}

void DeltaStore::bring_to_pinned(const Newest& newest) {
  RecordBuffer& bytes = *newest.bytes;
  if (bytes.place() != RecordPlace::host) return;
  RecordBuffer copied = pool_.take(RecordPlace::pinned);
  if (spec_.record_bytes > 0) std::memcpy(copied.get(), bytes.get(), spec_.record_bytes);
  retire(std::exchange(bytes, std::move(copied)),
         newest.is_staged ? 0 : newest.node->second.ticket);
}

RecordBuffer DeltaStore::copied_to_pinned(const RecordBuffer& device) {
  RecordBuffer copied = pool_.take(RecordPlace::pinned);
  copy_to_host(device.get(), spec_.record_bytes, copied.get());
  DeviceEvent().wait();
  return copied;
}

}  // namespace laconic
