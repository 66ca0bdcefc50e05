#include "laconic/codec/room_pool.hpp"

#include <gtest/gtest.h>

#include <array>

#include "laconic/codec/stream_progress.hpp"

namespace laconic {
namespace {

TEST(RoomPool, PinnedRoomHasNoLimit) {
  EXPECT_EQ(pinned_room(0), 4096u);
  EXPECT_EQ(pinned_room((256 << 10) + 80), 320u << 10);
  EXPECT_EQ(pinned_room(std::uint64_t{5} << 30), std::uint64_t{5} << 30);
}

TEST(RoomPool, DeviceRoomIsNeverMuchMoreThanWasAsked) {
  EXPECT_EQ(device_room(1), 4096u);
  EXPECT_EQ(device_room(4096), 4096u);
  EXPECT_EQ(device_room(4097), 5120u);
  EXPECT_EQ(device_room(7 << 20), 7u << 20);
  EXPECT_EQ(device_room(64 << 20), 64u << 20);
  EXPECT_EQ(device_room((64 << 20) + 1), 0u);
  for (std::uint64_t bytes = 4096; bytes <= 64 << 20; bytes += 1 + bytes / 7) {
    const std::uint64_t room = device_room(bytes);
    EXPECT_GE(room, bytes);
    EXPECT_LE(room, bytes + bytes / 4);
    EXPECT_EQ(room % 1024, 0u) << bytes;
    EXPECT_EQ(device_room(room), room) << bytes;
  }
}

TEST(RoomPool, GivesBackWhatHasTheRoom) {
  std::array<std::byte, 4> memory{};
  RoomPool pool;
  EXPECT_EQ(pool.take(8), nullptr);
  pool.give(8, &memory[0]);
  pool.give(16, &memory[1]);
  EXPECT_EQ(pool.take(12), nullptr);
  EXPECT_EQ(pool.take(16), &memory[1]);
  EXPECT_EQ(pool.take(16), nullptr);
  EXPECT_EQ(pool.take(8), &memory[0]);
  EXPECT_EQ(pool.take(8), nullptr);
}

TEST(RoomPool, DrainsToTheLast) {
  std::array<std::byte, 4> memory{};
  RoomPool pool;
  for (std::byte& piece : memory) pool.give(8, &piece);
  EXPECT_EQ(pool.drain().size(), 4u);
  EXPECT_EQ(pool.take(8), nullptr);
  EXPECT_TRUE(pool.drain().empty());
}

TEST(StreamProgress, OneThatIsReachedAnswersForThoseBefore) {
  StreamProgress progress;
  int recorded = 0;
  for (std::uint64_t number = 1; number <= 3; ++number)
    EXPECT_EQ(progress.count([&] { ++recorded; }), number);
  EXPECT_EQ(recorded, 3);
  EXPECT_FALSE(progress.is_reached(1));
  progress.learn(2, true, 0);
  EXPECT_TRUE(progress.is_reached(1));
  EXPECT_TRUE(progress.is_reached(2));
  EXPECT_FALSE(progress.is_reached(3));
  progress.learn(1, true, 0);  // somebody slow
  EXPECT_TRUE(progress.is_reached(2));
}

TEST(StreamProgress, OneThatIsNotAnswersForThoseBehindItForAWhile) {
  StreamProgress progress;
  EXPECT_FALSE(progress.is_known_to_wait(1, 0));
  progress.learn(2, false, 1);
  const double soon = 1 + StreamProgress::kPatience / 2, later = 1 + 2 * StreamProgress::kPatience;
  EXPECT_FALSE(progress.is_known_to_wait(1, soon));
  EXPECT_TRUE(progress.is_known_to_wait(2, soon));
  EXPECT_TRUE(progress.is_known_to_wait(3, soon));
  EXPECT_FALSE(progress.is_known_to_wait(2, later));
}

// What cannot be recorded has no number, so nobody believes that it was reached.
TEST(StreamProgress, CountsOnlyWhatWasRecorded) {
  StreamProgress progress;
  EXPECT_THROW(progress.count([] { throw 1; }), int);
  EXPECT_EQ(progress.count([] {}), 1u);
}

}  // namespace
}  // namespace laconic
