// What only the emulator can show: who asks for a device, what a GPU that stands still does to
// others, and how much memory is taken.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/launch.cuh"
#include "laconic/collective/test_collective.hpp"
#include "laconic/link/link.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;
using test::StuckDevice;

TEST(EmulatedDevice, SumsOfTheHostAskForNone) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 3, 5000);
  spec.up = spec.down = parse_codec("quantise:bits=4");
  spec.up_feedback = true;
  const std::uint64_t before = test::device_calls();
  auto values = random_buffers<float>(3, 5000, 1);
  run_members(3, [&](Engine& engine) {
    Collective collective(engine, spec);
    step_once(engine, collective, 0, bytes_in(values[static_cast<std::size_t>(engine.rank())]));
  });
  EXPECT_EQ(test::device_calls(), before);
}

TEST(EmulatedDevice, AnEventThatIsNotDoneIsWaitedForUntilTheDeadline) {
  const DeviceEvent event;
  EXPECT_FALSE(event.is_done());
  {
    const StuckDevice stuck;
    const Stopwatch watch;
    EXPECT_THROW(event.wait(milliseconds(20)), Timeout);
    EXPECT_FALSE(event.wait_quietly());  // at once: it has stood still
    EXPECT_LT(watch.seconds(), 4);
  }
  event.wait();
  EXPECT_TRUE(event.is_done());
  EXPECT_TRUE(event.wait_quietly());
}

// The GPU still writes there when a message is given up.
TEST(EmulatedDevice, AMessageKeepsItsMemoryUntilItIsWritten) {
  Sender sender({.name = "link", .codec = Raw{}});
  sender.begin(0);
  const TensorSpec tensor{Dtype::f32, {64}};
  const test::TestBuffer x(256);
  const std::uint64_t before = test::pinned_bytes();
  auto stuck = std::make_unique<StuckDevice>();
  auto message = std::make_unique<DeviceMessage>(sender.pack_on_device({tensor, x.as()}));
  std::atomic<bool> is_gone = false;
  std::thread giver([&] {
    message = nullptr;
    is_gone = true;
  });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(is_gone);
  EXPECT_EQ(test::pinned_bytes(), before + 256);
  stuck = nullptr;
  giver.join();
  EXPECT_EQ(test::pinned_bytes(), before);
}

struct Row {
  int at[64];
};

// Each thread reads what the one before it has written.
__global__ void pass_on(int* out, bool waits) {
  Row& row = kernel::shared_memory<Row>();
  const unsigned t = kernel::threadIdx.x;
  row.at[t] = static_cast<int>(t);
  if (waits) kernel::__syncthreads();
  out[t] = t == 0 ? 0 : row.at[t - 1];
}

TEST(EmulatedDevice, AMissingBarrierMakesOtherNumbers) {
  int wrong = 0;
  for (int turn = 0; turn < 12; ++turn)
    for (const bool waits : {true, false}) {
      int out[64];
      kernel::launch<Row>(pass_on, 1, 64, codec_stream(), out, waits);
      for (int t = 1; t < 64; ++t) {
        if (waits) {
          ASSERT_EQ(out[t], t - 1);
        } else {
          wrong += out[t] != t - 1;
        }
      }
    }
  EXPECT_GT(wrong, 0);
}

CollectiveSpec raw_sum(std::uint64_t elements) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 2, elements);
  spec.is_on_device = true;
  return spec;
}

// Many lanes, of which a GPU gets a few at a time.
TEST(EmulatedDevice, AGpuThatStandsStillIsATimeoutAndTakesLittlePinnedMemory) {
  constexpr std::uint64_t kElements = 4 << 20;
  const CollectiveSpec spec = raw_sum(kElements);
  std::vector<std::shared_ptr<Operation>> operations(2);
  const std::uint64_t before = test::pinned_bytes();
  test::most_pinned_bytes();
  {
    const StuckDevice stuck;
    run_members(2,
                [&](Engine& engine) {
                  const test::TestBuffer buffer(kElements * sizeof(float));
                  Collective collective(engine, spec);
                  collective.begin(0);
                  auto& operation = operations[static_cast<std::size_t>(engine.rank())];
                  operation = collective.operation(buffer.as<std::byte>(), 0);
                  try {
                    run(engine, *operation);
                    ADD_FAILURE();
                  } catch (const Timeout& error) {
                    EXPECT_NE(
                        std::string(error.what()).find("waiting for the GPU to encode lane 0"),
                        std::string::npos)
                        << error.what();
                  }
                  collective.abandon();
                },
                {.deadline = milliseconds(300)});
  }
  const std::uint64_t most = test::most_pinned_bytes() - before;
  EXPECT_GE(most, 2u * (4 << 20)) << "of both members";
  EXPECT_LE(most, 2u * (5 << 20));
  operations.clear();
  EXPECT_EQ(test::pinned_bytes(), before);
}

// More than a GPU is given at a time: it gets the rest when it has packed that.
TEST(EmulatedDevice, AllLanesHaveTheirTurn) {
  constexpr std::uint64_t kElements = 3 << 19;
  const CollectiveSpec spec = raw_sum(kElements);
  const Buffers<float> brought = random_buffers<float>(2, kElements, 4);
  run_members(2,
              [&](Engine& engine) {
                const auto member = static_cast<std::size_t>(engine.rank());
                const test::TestBuffer buffer(kElements * sizeof(float));
                test::to_device(buffer.as(), brought[member].data(), kElements * sizeof(float));
                Collective collective(engine, spec);
                step_once(engine, collective, 0, buffer.as<std::byte>());
                std::vector<float> sum(kElements);
                test::from_device(sum.data(), buffer.as(), kElements * sizeof(float));
                for (std::uint64_t i = 0; i < kElements; ++i)
                  ASSERT_EQ(sum[i], brought[0][i] + brought[1][i]) << i;
              },
              {.deadline = milliseconds(20'000)});
}

TEST(EmulatedDevice, TheTimeOfAGpuIsNotThatOfCodecs) {
  const CollectiveSpec spec = raw_sum(2048);
  auto stuck = std::make_unique<StuckDevice>();
  std::thread release([&] {
    std::this_thread::sleep_for(milliseconds(600));
    stuck = nullptr;
  });
  run_members(2, [&](Engine& engine) {
    const test::TestBuffer buffer(2048 * sizeof(float));
    Collective collective(engine, spec);
    step_once(engine, collective, 0, buffer.as<std::byte>());
    const Times times = engine.meter().read().times.at(Traffic::dp_gradient);
    EXPECT_GT(times.active, 0.5);
    EXPECT_GT(times.codec, 0);
    EXPECT_LT(times.codec, 0.4);
  });
  release.join();
}

// With one message a step: what the last step left, and what this one makes.
TEST(EmulatedDevice, ResidualsTakeTheirSizeTwice) {
  constexpr std::uint64_t kBytes = 4096 * sizeof(float);
  Sender sender(
      {.name = "link", .codec = parse_codec("quantise:bits=4"), .memory = ErrorFeedback{}});
  const TensorSpec tensor{Dtype::f32, {4096}};
  const test::TestBuffer x(kBytes);
  const std::vector<float> ones(4096, 1.0F);
  test::to_device(x.as(), ones.data(), kBytes);
  const std::uint64_t before = test::device_bytes();
  for (std::uint64_t step = 0; step < 5; ++step) {
    sender.begin(step);
    sender.pack_on_device({tensor, x.as()}).wait();
    sender.commit();
  }
  EXPECT_GE(test::device_bytes(), before + 2 * kBytes);
  EXPECT_LT(test::device_bytes(), before + 2 * kBytes + 256);
}

}  // namespace
}  // namespace laconic
