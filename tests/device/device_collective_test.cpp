// Sums whose buffers are in device memory, beside the same sums in host memory: equal bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

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
                        Case{Algorithm::direct, "random_k:keep=0.2", "raw"}}) {
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

}  // namespace
}  // namespace laconic
