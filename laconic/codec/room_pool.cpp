#include "laconic/codec/room_pool.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace laconic {

std::uint64_t pinned_room(std::uint64_t bytes) {
  constexpr std::uint64_t kLeast = 4096;
  const std::uint64_t least = std::max(bytes, kLeast), quarter = std::bit_floor(least) / 4;
  return (least + quarter - 1) / quarter * quarter;
}

std::uint64_t device_room(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{64} << 20;
  return bytes > kMost ? 0 : pinned_room(bytes);
}

std::byte* RoomPool::take(std::uint64_t room) {
  const std::lock_guard lock(mutex_);
  const auto found = free_.find(room);
  return found == free_.end() ? nullptr : free_.extract(found).mapped();
}

void RoomPool::give(std::uint64_t room, std::byte* memory) {
  const std::lock_guard lock(mutex_);
  free_.emplace(room, memory);
}

std::vector<std::byte*> RoomPool::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*> drained;
  for (const auto& [room, memory] : std::exchange(free_, {})) drained.push_back(memory);
  return drained;
}

}  // namespace laconic
