// Memory and events of the codec stream as codec/kernel/device_memory.cpp has them, on a GPU that
// does everything late: what is used again, who may read what when, and what happens to memory that
// a GPU may still use when CUDA refuses something.
#include "tests/device/late_device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "laconic/base/gpu_error.hpp"
#include "laconic/codec/device_floats.hpp"
#include "laconic/link/device_message.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

constexpr std::uint64_t kBytes = 5000;

class LateDevice : public testing::Test {
 protected:
  void TearDown() override { test::refuse({}); }
};

void fill(PinnedBuffer& pinned, int value) {
  std::memset(pinned.data(), value, pinned.size());
}

bool is_full_of(const std::byte* at, std::uint64_t bytes, int value) {
  for (std::uint64_t i = 0; i < bytes; ++i)
    if (at[i] != static_cast<std::byte>(value)) return false;
  return true;
}

TEST_F(LateDevice, WorkIsDoneWhenAnEventIsAskedNotBefore) {
  PinnedBuffer from(kBytes), to(kBytes);
  fill(from, 1);
  fill(to, 2);
  const DeviceBuffer there(kBytes);
  copy_to_device(from.data(), kBytes, there.data());
  copy_to_host(there.data(), kBytes, to.data());
  EXPECT_TRUE(is_full_of(to.data(), kBytes, 2));
  EXPECT_GE(test::queued_work(), 2u);
  DeviceEvent().wait();
  EXPECT_TRUE(is_full_of(to.data(), kBytes, 1));
}

// What other tests left.
void empty_pool() {
  test::refuse({.more_bytes = 0});
  EXPECT_THROW(DeviceBuffer{std::uint64_t{1} << 30}, GpuError);
  test::refuse({});
}

// Whoever gets the memory of another has its work done behind the other's.
TEST_F(LateDevice, DeviceMemoryThatIsGivenBackServesTheNext) {
  constexpr int kTurns = 30;
  std::vector<std::unique_ptr<PinnedBuffer>> from, to;
  std::byte* first = nullptr;
  empty_pool();
  auto is_held = std::make_unique<test::HeldDevice>();
  for (int turn = 0; turn < kTurns; ++turn) {
    from.push_back(std::make_unique<PinnedBuffer>(kBytes));
    to.push_back(std::make_unique<PinnedBuffer>(kBytes));
    fill(*from.back(), turn);
    const DeviceBuffer there(kBytes - static_cast<std::uint64_t>(turn));
    if (turn == 0) first = there.data();
    EXPECT_EQ(there.data(), first) << "of the same room, so the same piece";
    copy_to_device(from.back()->data(), there.size(), there.data());
    copy_to_host(there.data(), there.size(), to.back()->data());
  }
  is_held = nullptr;
  DeviceEvent().wait();
  for (int turn = 0; turn < kTurns; ++turn)
    EXPECT_TRUE(is_full_of(to[static_cast<std::size_t>(turn)]->data(),
                           kBytes - static_cast<std::uint64_t>(turn), turn))
        << turn;
}

TEST_F(LateDevice, PinnedMemoryOfUploadsServesAgainWhenItIsCopied) {
  Uploads uploads;
  std::vector<DeviceBuffer> there;
  const std::vector<std::byte> none(kBytes);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<std::byte> bytes(kBytes, static_cast<std::byte>(turn));
    there.push_back(uploads.upload(bytes));
    if (turn % 3 == 0) DeviceEvent().is_done();  // the GPU goes on a little
  }
  uploads = Uploads();  // waits for what is under way
  for (std::size_t turn = 0; turn < there.size(); ++turn) {
    std::vector<float> found = downloaded(there[turn]);
    EXPECT_TRUE(is_full_of(reinterpret_cast<const std::byte*>(found.data()), kBytes / 4 * 4,
                           static_cast<int>(turn)))
        << turn;
  }
}

// One that is done says so of those before it, so whoever believes it must find what was copied.
TEST_F(LateDevice, EventsOfManyThreadsTellTheTruth) {
  constexpr int kThreads = 4, kTurns = 300;
  std::atomic<int> wrong = 0;
  const auto work = [&](int thread) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const int value = (thread * kTurns + turn) % 251;
      PinnedBuffer from(kBytes), to(kBytes);
      fill(from, value);
      fill(to, 255);
      const DeviceBuffer there(kBytes);
      copy_to_device(from.data(), kBytes, there.data());
      copy_to_host(there.data(), kBytes, to.data());
      const DeviceEvent copied;
      while (!copied.is_done()) std::this_thread::yield();
      if (!is_full_of(to.data(), kBytes, value)) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(LateDevice, OneStreamWaitsForTheOtherBothWays) {
  std::vector<std::byte> bytes(kBytes, std::byte{7});
  const test::TestBuffer there(kBytes);
  test::HeldStream stream(there.as(), kBytes);
  stream.hold();
  enter_codec_stream(stream.stream());
  HostCopy copy(there.as<std::byte>(), kBytes);
  for (int turn = 0; turn < 50; ++turn) EXPECT_FALSE(copy.is_ready());
  const DeviceEvent of_stream(stream.stream());
  EXPECT_FALSE(of_stream.is_done());
  stream.open(bytes.data());
  copy.wait();
  EXPECT_TRUE(is_full_of(copy.bytes().data(), kBytes, 7));
  leave_codec_stream(stream.stream());
  DeviceEvent(stream.stream()).wait();
  EXPECT_TRUE(of_stream.is_done());
}

// --- buffers of bytes

// Of rooms that nobody else asks for, so that what is given back is what is taken next.
constexpr std::uint64_t kMessage = 41'000, kFrame = 57'000;

// Copied to the device as they lie there. Others who need such a buffer while the GPU has not come
// so far get another, whoever has let go of it.
TEST_F(LateDevice, MessagesAreKeptUntilTheyAreOnTheDevice) {
  constexpr std::size_t kHeader = 24;
  const TensorSpec tensor{Dtype::u8, {static_cast<std::int64_t>(kMessage)}};
  codec_stream();
  Uploads uploads;
  std::vector<DeviceBuffer> there;
  {
    const test::HeldDevice held;
    for (int turn = 0; turn < 20; ++turn) {
      auto message =
          std::make_shared<const Bytes>(kHeader + kMessage, static_cast<std::byte>(turn));
      ASSERT_TRUE(is_from_source(*message));
      there.push_back(uploads.upload(Raw{}, tensor, ByteView(*message).subspan(kHeader), message));
    }
  }
  uploads = Uploads();  // waits for what is under way
  for (std::size_t turn = 0; turn < there.size(); ++turn) {
    const std::vector<float> found = downloaded(there[turn]);
    EXPECT_TRUE(is_full_of(reinterpret_cast<const std::byte*>(found.data()), kMessage / 4 * 4,
                           static_cast<int>(turn)))
        << turn;
  }
}

// Nobody wants the frame any more, and whoever lets go of it waits for the GPU.
TEST_F(LateDevice, FramesAreKeptUntilTheyHaveCome) {
  const DeviceBuffer there(kFrame);
  auto frame = std::make_shared<Bytes>(kFrame);
  const std::byte* const before = frame->data();
  const std::span<std::byte> room(*frame);
  auto copy = std::make_unique<FrameCopy>(std::move(frame), room, there.data());
  std::thread lets_go;
  {
    const test::HeldDevice held;
    lets_go = std::thread([&copy] { copy.reset(); });
    for (int turn = 0; turn < 20; ++turn) {
      const Bytes other(kFrame);
      EXPECT_NE(other.data(), before);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  lets_go.join();
}

// --- refusals

// The address of pinned memory that is free, of a room that nobody else asks for.
constexpr std::uint64_t kRareBytes = std::uint64_t{3} << 20;
std::byte* free_pinned() {
  return PinnedBuffer(kRareBytes).data();
}

template <class Act>
void expect_lost(const Act& act) {
  const std::byte* const before = free_pinned();
  test::refuse({.records = 1});
  EXPECT_THROW(act(), GpuError);
  test::refuse({});
  EXPECT_TRUE(test::is_without_error());
  PinnedBuffer next(kRareBytes);
  EXPECT_NE(next.data(), before) << "the GPU still uses it";
  fill(next, 3);
  DeviceEvent().wait();
  EXPECT_TRUE(is_full_of(next.data(), next.size(), 3));
}

// A copy that is queued, and no event that tells when it is done.
TEST_F(LateDevice, PinnedMemoryIsLostWhereNobodyCanTellWhenItIsCopied) {
  const DeviceBuffer there(kRareBytes);
  expect_lost([&] { const HostCopy copy(there.data(), kRareBytes); });
  expect_lost([&] {
    auto frame = std::make_shared<Bytes>(kRareBytes - 64);
    const std::span<std::byte> room(*frame);
    const FrameCopy copy(std::move(frame), room, there.data());
  });
  expect_lost([&] {
    const std::vector<std::byte> bytes(kRareBytes);
    Uploads uploads;
    uploads.upload(bytes, there.data());
  });
  expect_lost([&] {
    const std::vector<float> floats(kRareBytes / sizeof(float));
    upload(floats, there.floats());
  });
  test::refuse({});
  HostCopy copy(there.data(), kRareBytes);
  copy.wait();
  const std::byte* const before = copy.bytes().data();
  test::refuse({.records = 1});
  EXPECT_THROW(copy.send_back(there.data()), GpuError);
  test::refuse({});
  EXPECT_NE(free_pinned(), before);
}

TEST_F(LateDevice, MemoryIsKeptUntilItIsSentBack) {
  const DeviceBuffer there(kRareBytes);
  auto copy = std::make_unique<HostCopy>(there.data(), kRareBytes);
  copy->wait();
  std::memset(copy->data(), 9, kRareBytes);
  copy->send_back(there.data());
  copy = nullptr;
  PinnedBuffer next(kRareBytes);
  fill(next, 4);
  const std::vector<float> found = downloaded(there);
  EXPECT_TRUE(is_full_of(reinterpret_cast<const std::byte*>(found.data()), kRareBytes, 9));
}

// What is kept serves other sizes before the device is said to be full; and what was told to one
// message is not told to the next.
TEST_F(LateDevice, MemoryThatIsKeptIsFreedWhenTheDeviceIsFull) {
  constexpr std::uint64_t kLarge = std::uint64_t{32} << 20;
  empty_pool();
  std::byte* const first = DeviceBuffer(kLarge).data();
  test::refuse({.more_bytes = 0});
  EXPECT_EQ(DeviceBuffer(kLarge).data(), first) << "it is kept";
  const DeviceBuffer half(kLarge / 2);
  EXPECT_THROW(DeviceBuffer{2 * kLarge}, GpuError);
  EXPECT_TRUE(test::is_without_error());
  const DeviceBuffer other(kLarge / 4);
}

}  // namespace
}  // namespace laconic
