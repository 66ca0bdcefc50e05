// store/record_pool.hpp — buffers of one size that are used again, in three kinds of memory.
//
// What is given back is handed out first, so a steady state allocates nothing
// and touches no new pages. The bytes of a buffer from take() are whatever was
// there before.
//
// Pinned buffers are cut from large slabs: the driver takes its time for each
// piece of memory that it pins. Buffers of a GPU are used in the order of the codec
// stream (codec/device_memory.hpp), so they may change hands while work on them is
// still queued.
//
// Thread safety: none; a pool belongs to one thread, its buffers to whom they were given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace laconic {

inline constexpr std::size_t kRecordAlignment = 64;

enum class RecordPlace : std::uint8_t {
  host,    // ordinary memory
  pinned,  // of the host, for a GPU to copy to and from by itself
  device,  // of the GPU
};

class RecordBuffer {
 public:
  RecordBuffer() = default;
  RecordBuffer(RecordPlace place, std::shared_ptr<void> owner, std::byte* bytes)
      : place_(place), owner_(std::move(owner)), bytes_(bytes) {}
  RecordBuffer(RecordBuffer&&) = default;
  RecordBuffer& operator=(RecordBuffer&&) = default;

  explicit operator bool() const { return owner_ != nullptr; }
  std::byte* get() const { return bytes_; }
  RecordPlace place() const { return place_; }

 private:
  RecordPlace place_ = RecordPlace::host;
  std::shared_ptr<void> owner_;
  std::byte* bytes_ = nullptr;
};

class RecordPool {
 public:
  explicit RecordPool(std::uint64_t record_bytes) : record_bytes_(record_bytes) {}

  RecordBuffer take(RecordPlace place);
  // Requires: a buffer of this pool that nobody reads or writes any more, but for a GPU that has
  // work with one of its own in the codec stream.
  void give(RecordBuffer buffer);
  // Frees ordinary memory when it is given back, from now on: nobody will ask for it again.
  void free_host_buffers();
  std::uint64_t in_use(RecordPlace place) const { return in_use_[static_cast<std::size_t>(place)]; }

 private:
  RecordBuffer allocate(RecordPlace place);
  RecordBuffer cut_from_slab();

  std::uint64_t record_bytes_;
  bool keeps_host_ = true;
  std::array<std::uint64_t, 3> in_use_ = {};       // by place
  std::array<std::vector<RecordBuffer>, 3> free_;  // likewise
  std::shared_ptr<void> slab_;                     // of pinned memory
  std::byte* slab_at_ = nullptr;                   // what is left of it
  std::uint64_t slab_left_ = 0, slab_bytes_ = 0;   // buffers; of the whole slab
};

}  // namespace laconic
