// codec/room_pool.hpp — pieces of memory that are kept when they are free, and used again.
//
// Whoever asks CUDA for memory waits for its locks, which threads that compute hold all the time. A
// message takes a few pieces and gives them back at once, of the few sizes that its kind has; they
// are kept here by their room, a size that several sizes share. What memory that is, and when its
// last work is done, is the caller's affair. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace laconic {

// What so many bytes take: quarters of powers of two, so at most a quarter is room that nobody asked
// for. Of a device 0: so much is not worth keeping, since what is large lives long.
std::uint64_t pinned_room(std::uint64_t bytes);
std::uint64_t device_room(std::uint64_t bytes);

class RoomPool {
 public:
  // Null when none of this room is free.
  std::byte* take(std::uint64_t room);
  void give(std::uint64_t room, std::byte* memory);
  // All that is free, which leaves the pool.
  std::vector<std::byte*> drain();

 private:
  std::mutex mutex_;
  std::multimap<std::uint64_t, std::byte*> free_;  // by room
};

}  // namespace laconic
