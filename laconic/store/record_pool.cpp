#include "laconic/store/record_pool.hpp"

#include <algorithm>
#include <new>

#include "laconic/codec/device_memory.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kFirstSlab = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestSlab = std::uint64_t{256} << 20;

void free_host(void* bytes) {
  ::operator delete[](bytes, std::align_val_t{kRecordAlignment});
}

}  // namespace

RecordBuffer RecordPool::take(RecordPlace place) {
  auto& free = free_[static_cast<std::size_t>(place)];
  RecordBuffer buffer = free.empty() ? allocate(place) : std::move(free.back());
  if (!free.empty()) free.pop_back();
  ++in_use_[static_cast<std::size_t>(place)];
  return buffer;
}

void RecordPool::give(RecordBuffer buffer) {
  const auto place = static_cast<std::size_t>(buffer.place());
  --in_use_[place];
  if (keeps_host_ || buffer.place() != RecordPlace::host) free_[place].push_back(std::move(buffer));
}

void RecordPool::free_host_buffers() {
  keeps_host_ = false;
  free_[static_cast<std::size_t>(RecordPlace::host)].clear();
}

RecordBuffer RecordPool::allocate(RecordPlace place) {
  if (place == RecordPlace::pinned) return cut_from_slab();
  if (place == RecordPlace::device) {
    auto buffer = std::make_shared<DeviceBuffer>(record_bytes_);
    std::byte* const bytes = buffer->data();
    return {place, std::move(buffer), bytes};
  }
  auto* const bytes =
      static_cast<std::byte*>(::operator new[](record_bytes_, std::align_val_t{kRecordAlignment}));
  return {place, std::shared_ptr<void>(bytes, free_host), bytes};
}

// Slabs grow, so that few records do not pin much memory. They stay below powers of two, to which
// pinned memory is rounded up.
RecordBuffer RecordPool::cut_from_slab() {
  const std::uint64_t stride =
      (record_bytes_ + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
  if (slab_left_ == 0) {
    slab_bytes_ = std::clamp(2 * slab_bytes_, kFirstSlab, kLargestSlab);
    slab_left_ = std::max<std::uint64_t>(1, (slab_bytes_ - 1) / std::max<std::uint64_t>(1, stride));
    auto slab = std::make_shared<PinnedBuffer>(slab_left_ * stride);
    slab_at_ = slab->data();
    slab_ = std::move(slab);
  }
  RecordBuffer buffer(RecordPlace::pinned, slab_, slab_at_);
  slab_at_ += stride;
  --slab_left_;
  return buffer;
}

}  // namespace laconic
