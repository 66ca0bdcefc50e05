// Sums of gradients in device memory, beside the same in host memory: equal sums, equal memories.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>

#include "laconic/reduce/test_summing.hpp"
#include "laconic/reduce/test_sums.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using namespace test;
using DeviceSum = DeviceTest;

// One rank's end of sums whose buffers are in device memory. A gradient comes there after it was
// posted, as by a GPU that is still computing it.
struct SumMember {
  SumMember(Transport& transport, const GradientPolicy& policy,
            const std::vector<BlockLayout>& blocks)
      : engine(transport), progress_thread(engine) {
    Group group;
    for (Rank rank = 0; rank < transport.size(); ++rank) group.push_back(rank);
    sum = make_gradient_sum(progress_thread, group, policy, Traffic::dp_gradient, blocks,
                            Dtype::f32, /*is_on_device=*/true);
  }

  void exchange(std::uint64_t step, Blocks<float>& values, bool is_shadow = false) {
    std::deque<TestBuffer> buffers;
    std::deque<HeldStream> streams;
    for (const auto& block : values) {
      const std::size_t bytes = block.size() * sizeof(float);
      streams.emplace_back(buffers.emplace_back(bytes).as(), bytes);
    }
    // Whoever opens streams begins before they are held: pinning memory, as another rank may do
    // now, waits for all of them inside CUDA, and this thread would wait for that.
    std::thread gpu([&] {
      for (std::size_t b = values.size(); b-- > 0;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        streams[b].open(values[b].data());
      }
    });
    for (HeldStream& stream : streams) stream.hold();
    if (is_shadow)
      sum->begin_shadow(step);
    else
      sum->begin(step);
    for (std::size_t b = values.size(); b-- > 0;)
      sum->post(b, buffers[b].as<std::byte>(), Ready(DeviceEvent(streams[b].stream())));
    sum->wait();
    gpu.join();
    streams.clear();  // what nobody adds to nobody has waited for
    for (std::size_t b = 0; b < values.size(); ++b)
      from_device(values[b].data(), buffers[b].as(), values[b].size() * sizeof(float));
    engine.flush();
  }

  Engine engine;
  ProgressThread progress_thread;
  std::unique_ptr<GradientSum> sum;
};

GradientPolicy policy_by(const char* up, const char* down) {
  return {.up = parse_codec(up), .down = parse_codec(down), .seed = 3};
}

struct SumOutcome {
  std::vector<std::vector<Blocks<float>>> sums;  // by rank and step
  std::vector<NamedFloats> states;
  std::vector<Fidelity> fidelities;
};

// Steps that are committed, abandoned, measured, of another codec, bypassed, a shadow, resumed.
template <class AnyMember>
SumOutcome course_of(const GradientPolicy& policy, int ranks) {
  SumOutcome outcome;
  outcome.sums.resize(static_cast<std::size_t>(ranks));
  outcome.states.resize(outcome.sums.size());
  outcome.fidelities.resize(outcome.sums.size());
  const bool is_lossless = !is_lossy(policy.up) && !is_lossy(policy.down);
  run_ranks(ranks, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    auto member = std::make_unique<AnyMember>(transport, policy, kBlocks);
    for (std::uint64_t step = 0; step < 10; ++step) {
      member->sum->measure_fidelity(step == 3);
      if (step == 4 && !is_lossless)
        member->sum->override_codec({.codec = parse_codec("quantise:bits=6")});
      if (step == 5) member->sum->override_codec({.is_bypassed = true});
      if (step == 7) member->sum->override_codec({});
      if (step == 9) {  // resumed
        const NamedFloats state = member->sum->save();
        member = nullptr;
        member = std::make_unique<AnyMember>(transport, policy, kBlocks);
        member->sum->load(state);
      }
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      member->exchange(step, values);
      outcome.sums[rank].push_back(values);
      if (step == 3) outcome.fidelities[rank] = member->sum->fidelity();
      if (step == 2)
        member->sum->abandon();
      else
        member->sum->commit();
    }
    outcome.states[rank] = member->sum->save();
  });
  return outcome;
}

TEST_F(DeviceSum, SumsAndMemoriesAreThoseOfTheHost) {
  GradientPolicy ring;
  ring.algorithm = SumAlgorithm::ring;
  GradientPolicy warm = policy_by("quantise:bits=4", "quantise:bits=8");
  warm.warm_up_steps = 2;
  for (const auto& [ranks, policy] : {std::pair{2, policy_by("quantise:bits=4", "quantise:bits=4")},
                                      {3, policy_by("quantise:bits=4", "half")},
                                      {3, policy_by("sign", "raw")},
                                      {2, warm},
                                      {3, GradientPolicy{}},
                                      {3, ring},
                                      {1, policy_by("quantise:bits=4", "quantise:bits=4")}}) {
    const std::string where =
        fmt::format("{} ranks, {}, {}", ranks, to_text(policy.up), to_text(policy.down));
    SCOPED_TRACE(where);
    ASSERT_TRUE(sums_on_device(policy, Dtype::f32, ranks));
    const SumOutcome host = course_of<Member>(policy, ranks);
    const SumOutcome device = course_of<SumMember>(policy, ranks);
    for (std::size_t r = 0; r < host.sums.size(); ++r) {
      for (std::size_t step = 0; step < host.sums[r].size(); ++step)
        expect_same(host.sums[r][step], device.sums[r][step], fmt::format("step {}", step));
      expect_same_state(host.states[r], device.states[r], where);
      // Lanes add to it in any order.
      const Fidelity &a = host.fidelities[r], &b = device.fidelities[r];
      EXPECT_EQ(a.messages, b.messages);
      EXPECT_EQ(a.messages > 0, is_lossy(policy.up) && ranks > 1);
      EXPECT_NEAR(a.error, b.error, 1e-12 * a.error);
      EXPECT_NEAR(a.residual, b.residual, 1e-12 * a.residual);
    }
  }
}

// With both methods: power_sgd's matrices, too.
TEST_F(DeviceSum, OneRankPaysWhatMoreLeftOutstanding) {
  for (const ReduceMethod method : {ReduceMethod::codec, ReduceMethod::power_sgd}) {
    GradientPolicy policy = policy_by("quantise:bits=4", "quantise:bits=4");
    policy.method = method;
    ASSERT_TRUE(sums_on_device(policy, Dtype::f32, 1));
    std::vector<NamedFloats> saved(2);
    run_ranks(2, [&](Transport& transport) {
      Member member(transport, policy, kBlocks);
      auto values = gradients<float>(kBlocks, transport.rank(), 0);
      member.exchange(0, values);
      member.sum->commit();
      saved[static_cast<std::size_t>(transport.rank())] = member.sum->save();
    });
    const NamedFloats state = reshard(saved, 1, policy, kBlocks)[0];
    run_ranks(1, [&](Transport& transport) {
      Member host(transport, policy, kBlocks);
      host.sum->load(state);
      for (std::uint64_t step = 1; step < 3; ++step) {
        auto expected = gradients<float>(kBlocks, 0, step);
        host.exchange(step, expected);
        host.sum->commit();
        // A member of its own for each step: two would listen to one transport.
        std::unique_ptr<GradientSum> lone = make_lone_sum(policy, kBlocks, Dtype::f32, true);
        if (step == 1) lone->load(state);
        auto values = gradients<float>(kBlocks, 0, step);
        lone->begin(step);
        for (std::size_t b = 0; b < values.size(); ++b) {
          const TestBuffer buffer(values[b].size() * sizeof(float));
          {  // whose end waits for the stream: nobody else does where nothing is outstanding
            HeldStream stream(buffer.as(), values[b].size() * sizeof(float));
            stream.hold();
            std::thread gpu([&] {
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
              stream.open(values[b].data());
            });
            lone->post(b, buffer.as<std::byte>(), Ready(DeviceEvent(stream.stream())));
            gpu.join();
          }
          from_device(values[b].data(), buffer.as(), values[b].size() * sizeof(float));
        }
        lone->wait();
        lone->commit();
        EXPECT_TRUE(lone->save().empty());
        expect_same(expected, values, fmt::format("step {}", step));
      }
    });
  }
}

TEST_F(DeviceSum, NativeSumsAreThoseOfTheHost) {
  constexpr int kRanks = 3;
  const GradientPolicy policy{.algorithm = SumAlgorithm::native};
  ASSERT_TRUE(sums_on_device(policy, Dtype::f32, kRanks));
  std::vector<std::vector<Blocks<float>>> host(kRanks), device(kRanks);
  const auto steps_of = [&]<class AnyMember>(AnyMember&& member, auto& sums, Rank rank) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto values = gradients<float>(kBlocks, rank, step);
      member.exchange(step, values);
      member.sum->commit();
      sums[static_cast<std::size_t>(rank)].push_back(values);
    }
  };
  run_ranks(kRanks, [&](Transport& transport) {
    Summing summing(transport);
    steps_of(Member(summing, policy, kBlocks), host, transport.rank());
  });
  run_ranks(kRanks, [&](Transport& transport) {
    Summing summing(transport);
    steps_of(SumMember(summing, policy, kBlocks), device, transport.rank());
  });
  for (std::size_t r = 0; r < kRanks; ++r)
    for (std::size_t step = 0; step < 3; ++step)
      expect_same(host[r][step], device[r][step], fmt::format("rank {}, step {}", r, step));
}

// Nothing outstanding is added, and what is remembered stays.
TEST_F(DeviceSum, ShadowsAreExact) {
  const GradientPolicy policy = policy_by("quantise:bits=2", "quantise:bits=2");
  run_ranks(2, [&](Transport& transport) {
    SumMember member(transport, policy, kBlocks);
    auto first = gradients<float>(kBlocks, transport.rank(), 0);
    member.exchange(0, first);
    member.sum->commit();
    const NamedFloats before = member.sum->save();
    auto values = gradients<float>(kBlocks, transport.rank(), 1);
    member.exchange(1, values, /*is_shadow=*/true);
    member.sum->abandon();
    Blocks<float> expected = gradients<float>(kBlocks, 0, 1);
    const Blocks<float> other = gradients<float>(kBlocks, 1, 1);
    for (std::size_t b = 0; b < expected.size(); ++b)
      for (std::size_t i = 0; i < expected[b].size(); ++i) expected[b][i] += other[b][i];
    expect_same(expected, values, "shadow");
    expect_same_state(before, member.sum->save(), "after the shadow");
  });
}

TEST_F(DeviceSum, WhatAGpuCannotAddStaysWithTheHost) {
  const GradientPolicy added = policy_by("random_k:keep=0.5", "random_k:keep=0.5");
  EXPECT_FALSE(sums_on_device(added, Dtype::f32, 2));
  EXPECT_TRUE(sums_on_device(added, Dtype::f32, 1));
  EXPECT_FALSE(sums_on_device({}, Dtype::f64, 2));
  EXPECT_FALSE(sums_on_device({}, Dtype::f64, 1));
}

}  // namespace
}  // namespace laconic
