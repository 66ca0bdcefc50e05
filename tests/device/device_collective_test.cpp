// Sums whose buffers are in device memory, beside the same sums in host memory: equal bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "laconic/base/error.hpp"
#include "laconic/collective/message.hpp"
#include "laconic/collective/test_collective.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using DeviceCollective = test::DeviceTest;

constexpr int kMembers = 3, kSteps = 4;

// What all members have after some steps, and what they remember.
struct Outcome {
  std::vector<Buffers<float>> sums = std::vector<Buffers<float>>(kSteps, Buffers<float>(kMembers));
  std::vector<CollectiveState> states = std::vector<CollectiveState>(kMembers);
};

Outcome sums_of(CollectiveSpec spec, bool is_on_device) {
  Outcome outcome;
  spec.is_on_device = is_on_device;
  run_members(kMembers, [&](Engine& engine) {
    const auto member = static_cast<std::size_t>(engine.rank());
    Collective collective(engine, spec);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float>& values = outcome.sums[static_cast<std::size_t>(step)][member];
      values =
          random_buffers<float>(kMembers, spec.offsets.back(), static_cast<unsigned>(step))[member];
      const std::size_t bytes = values.size() * sizeof(float);
      const bool is_exact = step == 2;
      if (!is_on_device) {
        step_once(engine, collective, static_cast<std::uint64_t>(step), bytes_in(values), is_exact);
        continue;
      }
      const test::TestBuffer device(bytes);
      test::to_device(device.as(), values.data(), bytes);
      step_once(engine, collective, static_cast<std::uint64_t>(step), device.as<std::byte>(),
                is_exact);
      test::from_device(values.data(), device.as(), bytes);
    }
    outcome.states[member] = collective.save();
  });
  return outcome;
}

TEST_F(DeviceCollective, SumsAndMemoriesAreThoseOfTheHost) {
  struct Case {
    Algorithm algorithm;
    const char* up;
    const char* down;
  };
  for (const Case& c : {Case{Algorithm::direct, "raw", "raw"}, Case{Algorithm::ring, "raw", "raw"},
                        Case{Algorithm::doubling, "raw", "raw"},
                        Case{Algorithm::direct, "quantise:bits=4", "quantise:bits=8"},
                        Case{Algorithm::direct, "half", "raw"},
                        Case{Algorithm::direct, "top_k:keep=0.1", "half:kind=f16"},
                        Case{Algorithm::direct, "random_k:keep=0.2+half", "sign"},
                        Case{Algorithm::direct, "sign", "top_k:keep=0.1+quantise:bits=4"},
                        Case{Algorithm::direct, "half", "random_k:keep=0.2+quantise:bits=8"},
                        Case{Algorithm::direct, "huffman", "quantise:bits=4,rotate=true"},
                        Case{Algorithm::direct, "random_k:keep=0.2", "raw"},
                        Case{Algorithm::doubling, "random_k:keep=0.2", "raw"},
                        Case{Algorithm::gathered, "raw", "raw"},
                        Case{Algorithm::gathered, "quantise:bits=4", "raw"},
                        Case{Algorithm::gathered, "top_k:keep=0.1+half", "raw"}}) {
    SCOPED_TRACE(fmt::format("{}: {}, {}", name_of(c.algorithm), c.up, c.down));
    CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, c.algorithm, kMembers, 5000);
    spec.up = parse_codec(c.up);
    spec.down = parse_codec(c.down);
    spec.up_feedback = is_lossy(spec.up);
    spec.down_feedback = is_lossy(spec.down);
    spec.lane_elements = 2000;
    const Outcome host = sums_of(spec, false), device = sums_of(spec, true);
    EXPECT_EQ(host.sums, device.sums);
    EXPECT_EQ(host.states, device.states);
  }
}

// One whose gradient is not there yet holds up nobody, though it was started first.
TEST_F(DeviceCollective, BeginsWhenItsBufferIsReady) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, kMembers, 3000);
  spec.up = spec.down = parse_codec("quantise:bits=8");
  spec.is_on_device = true;
  sums_of(spec,
          true);  // CUDA may wait for all streams when it pins memory: from here on there is some
  const Buffers<float> brought = random_buffers<float>(kMembers, 3000, 1);
  Buffers<float> early(kMembers), late(kMembers);
  run_members(kMembers, [&](Engine& engine) {
    const auto member = static_cast<std::size_t>(engine.rank());
    const std::size_t bytes = brought[member].size() * sizeof(float);
    CollectiveSpec other = spec;
    other.unit = 1;
    Collective first(engine, spec), second(engine, other);
    const test::TestBuffer slow(bytes), fast(bytes);
    test::HeldStream stream(slow.as(), bytes);
    stream.hold();
    test::to_device(fast.as(), brought[member].data(), bytes);
    ProgressThread progress_thread(engine);
    first.begin(0);
    second.begin(0);
    const auto held =
        first.operation(slow.as<std::byte>(), 0, false, Ready(DeviceEvent(stream.stream())));
    const auto free = second.operation(fast.as<std::byte>(), 1, false, Ready(DeviceEvent()));
    progress_thread.start(held);
    progress_thread.start(free);
    progress_thread.wait(free);
    EXPECT_NE(held->describe().find("waiting for the GPU"), std::string::npos) << held->describe();
    stream.open(brought[member].data());
    progress_thread.wait(held);
    early[member].resize(3000);
    late[member].resize(3000);
    test::from_device(early[member].data(), fast.as(), bytes);
    test::from_device(late[member].data(), slow.as(), bytes);
    first.commit();
    second.commit();
  });
  for (std::size_t member = 0; member < kMembers; ++member) {
    EXPECT_EQ(early[member], early[0]);
    EXPECT_EQ(late[member], early[0]);
  }
}

// A frame that is sound but for its payload, in the place of the other member's contribution.
TEST_F(DeviceCollective, RefusesWhatIsNoPayload) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 2, 2000);
  spec.up = parse_codec("top_k:keep=0.1");
  spec.is_on_device = true;
  run_members(2, [&](Engine& engine) {
    if (engine.rank() == 1) {
      auto message = std::make_shared<Bytes>();
      const std::span<std::byte> room = open_frame(
          *message,
          {.codec = spec.up, .tensor = {Dtype::f32, {1000}}, .sequence = make_sequence(0, 0)});
      std::ranges::fill(room, std::byte{0xFF});
      close_frame(*message, 0, room.size());
      engine.send({.to = 0,
                   .tag = make_tag({.traffic = spec.traffic, .unit = spec.unit}),
                   .message = message});
      return;
    }
    const test::TestBuffer buffer(2000 * sizeof(float));
    Collective collective(engine, spec);
    collective.begin(0);
    EXPECT_THROW(run(engine, *collective.operation(buffer.as<std::byte>(), 0)), WireError);
    collective.abandon();
  });
}

TEST_F(DeviceCollective, RefusesWhatAGpuCannotAdd) {
  CollectiveSpec spec =
      spec_of(CollectiveKind::all_reduce, Algorithm::direct, kMembers, 3000, Dtype::f64);
  EXPECT_TRUE(check(spec).empty());
  spec.is_on_device = true;
  EXPECT_EQ(check(spec).size(), 1u);
}

}  // namespace
}  // namespace laconic
