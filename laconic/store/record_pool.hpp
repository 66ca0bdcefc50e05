// store/record_pool.hpp — buffers of one size that are used again.
//
// What is given back is handed out first, so a steady state allocates nothing
// and touches no new pages. The bytes of a buffer from take() are whatever was
// there before.
//
// Thread safety: none; a pool belongs to one thread, its buffers to whom they were given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace laconic {

inline constexpr std::size_t kRecordAlignment = 64;

struct FreeRecord {
  void operator()(std::byte* bytes) const {
    ::operator delete[](bytes, std::align_val_t{kRecordAlignment});
  }
};
using RecordBuffer = std::unique_ptr<std::byte[], FreeRecord>;

class RecordPool {
 public:
  explicit RecordPool(std::uint64_t record_bytes) : record_bytes_(record_bytes) {}

  RecordBuffer take() {
    RecordBuffer buffer = free_.empty() ? allocate() : std::move(free_.back());
    if (!free_.empty()) free_.pop_back();
    ++in_use_;
    return buffer;
  }
  // Requires: a buffer of this pool that nobody reads or writes any more.
  void give(RecordBuffer buffer) {
    free_.push_back(std::move(buffer));
    --in_use_;
  }
  std::uint64_t in_use() const { return in_use_; }

 private:
  RecordBuffer allocate() const {
    return RecordBuffer(static_cast<std::byte*>(
        ::operator new[](record_bytes_, std::align_val_t{kRecordAlignment})));
  }

  std::uint64_t record_bytes_;
  std::uint64_t in_use_ = 0;
  std::vector<RecordBuffer> free_;
};

}  // namespace laconic
