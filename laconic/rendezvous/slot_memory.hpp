// rendezvous/slot_memory.hpp — memory for messages in flight, which counts only while it holds one.
//
// Slots are large because a fragment may be, and nearly all of them are empty at any time. So the
// pages come from the kernel when something is written to them, and forget() gives them back. The
// heap would not do: it asks for large pages, and one byte written into a slot would then cost
// 2 MB.
//
// Thread-safe as far as places do not overlap.
#pragma once

#include <cstddef>

namespace laconic {

class SlotMemory {
 public:
  // Throws std::bad_alloc.
  explicit SlotMemory(std::size_t bytes);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Gives back the pages that lie wholly inside; what was there reads as zero. Requires: offset +
  // bytes <= size().
  void forget(std::size_t offset, std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace laconic
