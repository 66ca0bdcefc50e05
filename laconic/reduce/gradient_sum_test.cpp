#include "laconic/reduce/gradient_sum.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/reduce/test_sums.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

GradientPolicy policy_of(const std::string& up, const std::string& down = "raw") {
  return {.up = parse_codec(up), .down = parse_codec(down)};
}

// --- exact

template <class T>
void expect_exact() {
  for (const int members : kMembers)
    run_ranks(members, [&](Transport& transport) {
      Member member(transport, {}, kBlocks, kDtypeOf<T>);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto contributions = all_gradients<T>(kBlocks, members, step);
        auto values = contributions[static_cast<std::size_t>(transport.rank())];
        member.exchange(step, values);
        for (std::size_t b = 0; b < kBlocks.size(); ++b) {
          Blocks<T> parts;
          for (const auto& rank : contributions) parts.push_back(rank[b]);
          expect_same<T>({rank_ordered_sum(parts)}, {values[b]},
                         fmt::format("{} members, step {}", members, step));
        }
        member.sum->commit();
      }
      EXPECT_TRUE(member.sum->save().empty());
    });
}

TEST(GradientSum, AnExactSumIsInTheOrderOfRanks) {
  expect_exact<float>();
  expect_exact<double>();
}

TEST(GradientSum, EveryAlgorithmGivesAllRanksTheSameBits) {
  for (const auto algorithm : {SumAlgorithm::ring, SumAlgorithm::doubling})
    for (const int members : kMembers) {
      const std::string name(name_in(kSumAlgorithmNames, algorithm));
      std::vector<Blocks<float>> results(static_cast<std::size_t>(members));
      run_ranks(members, [&](Transport& transport) {
        Member member(transport, {.algorithm = algorithm}, kBlocks);
        auto values = gradients<float>(kBlocks, transport.rank(), 0);
        member.exchange(0, values);
        member.sum->commit();
        results[static_cast<std::size_t>(transport.rank())] = values;
      });
      const auto contributions = all_gradients<float>(kBlocks, members, 0);
      for (const auto& result : results) expect_same(results[0], result, name);
      for (std::size_t b = 0; b < kBlocks.size(); ++b)
        for (std::size_t i = 0; i < results[0][b].size(); ++i) {
          double sum = 0;
          for (const auto& rank : contributions) sum += rank[b][i];
          ASSERT_NEAR(results[0][b][i], sum, 1e-5) << name << ", " << members << " members";
        }
    }
}

// --- lossy

// Runs some steps, one of them abandoned, against the model.
template <class T>
void expect_as_model(const GradientPolicy& policy, int members,
                     const std::vector<BlockLayout>& blocks = kBlocks) {
  const std::string name =
      fmt::format("{} {} {} {}, {} members", to_text(policy.up), to_text(policy.down),
                  policy.up_feedback, policy.down_feedback, members);
  std::vector<Blocks<T>> expected;
  SumModel<T> model(policy, blocks, members);
  for (std::uint64_t step = 0; step < 5; ++step) {
    expected.push_back(model.sum(step, all_gradients<T>(blocks, members, step)));
    step == 2 ? model.abandon() : model.commit();
  }
  run_ranks(members, [&](Transport& transport) {
    Member member(transport, policy, blocks, kDtypeOf<T>);
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto values = gradients<T>(blocks, transport.rank(), step);
      member.exchange(step, values);
      step == 2 ? member.sum->abandon() : member.sum->commit();
      expect_same(expected[step], values, fmt::format("{}, step {}", name, step));
    }
    expect_same_state(model.state(transport.rank()), member.sum->save(), name);
  });
}

const std::vector<std::pair<std::string, std::string>> kLossy = {
    {"quantise:bits=4,block=64", "quantise:bits=4,block=64"},
    {"quantise:bits=2,block=100", "quantise:bits=8,block=256"},
    {"half", "half"},
    {"sign:block=64", "sign:block=128"},
    {"top_k:keep=0.1", "raw"},
    {"top_k:keep=0.1+quantise:bits=4", "quantise:bits=4"},
    {"raw", "quantise:bits=4"},
    {"quantise:bits=4,grid=ends,rounding=stochastic", "quantise:bits=4,rotate=true"},
    {"random_k:keep=0.2", "raw"},
    {"random_k:keep=0.2", "random_k:keep=0.2"},
    {"random_k:keep=0.2+half", "random_k:keep=0.5+half"}};

TEST(GradientSum, LosesWhatItsModelLoses) {
  for (const auto& [up, down] : kLossy)
    for (const int members : kMembers) expect_as_model<float>(policy_of(up, down), members);
}

TEST(GradientSum, LosesWhatItsModelLosesInDouble) {
  for (const int members : kMembers)
    expect_as_model<double>(policy_of("quantise:bits=4", "quantise:bits=6"), members);
}

// A rank of a pipeline has only some blocks of the model; those it has not are never posted.
TEST(GradientSum, BlocksWithoutElementsAreNobodysBusiness) {
  const std::vector<BlockLayout> blocks = {{"nothing", {}}, kBlocks[1], {"none", {}}, kBlocks[3]};
  GradientPolicy factors = policy_of("raw");
  factors.method = ReduceMethod::power_sgd;
  factors.rank = 2;
  GradientPolicy by_block = factors;
  by_block.by_block = true;
  factors.warm_up_steps = 1;
  for (const GradientPolicy& policy :
       {GradientPolicy{}, policy_of("quantise:bits=4", "quantise:bits=4"), factors, by_block})
    for (const int members : {1, 3}) {
      std::vector<Blocks<float>> sums(static_cast<std::size_t>(members));
      run_ranks(members, [&](Transport& transport) {
        Member member(transport, policy, blocks);
        auto& values = sums[static_cast<std::size_t>(transport.rank())];
        for (std::uint64_t step = 0; step < 3; ++step) {
          values = gradients<float>(blocks, transport.rank(), step);
          member.sum->begin(step);
          for (const std::size_t b : {3, 1})
            member.sum->post(b, reinterpret_cast<std::byte*>(values[b].data()));
          member.sum->wait();
          member.engine.flush();
          step == 1 ? member.sum->abandon() : member.sum->commit();
        }
        member.sum->load(member.sum->save());
        for (const auto& [name, state] : member.sum->save())
          EXPECT_FALSE(name.starts_with("no")) << name;
      });
      for (const auto& values : sums) expect_same(sums[0], values, "with empty blocks");
      const bool is_exact = policy.method == ReduceMethod::codec && policy.up == CodecSpec{Raw{}};
      Blocks<float> contributions;
      for (int r = 0; r < members; ++r) contributions.push_back(gradients<float>(blocks, r, 2)[1]);
      EXPECT_EQ(sums[0][1] == rank_ordered_sum(contributions), is_exact || members == 1);
    }
}

TEST(GradientSum, LargeBlocksTravelInLanes) {
  const std::vector<BlockLayout> blocks = {{"large", {{"matrix", {Dtype::f32, {560, 1000}}}}},
                                           {"small", {{"vector", {Dtype::f32, {300}}}}}};
  expect_as_model<float>(policy_of("quantise:bits=4,grid=ends,rounding=stochastic", "half"), 2,
                         blocks);
}

TEST(GradientSum, EitherResidualCanBeLeftOut) {
  for (const auto& [up, down] : {std::pair{true, false}, {false, true}, {false, false}}) {
    GradientPolicy policy = policy_of("quantise:bits=3", "quantise:bits=3");
    policy.up_feedback = up;
    policy.down_feedback = down;
    expect_as_model<float>(policy, 3);
  }
}

TEST(GradientSum, WarmUpIsExact) {
  GradientPolicy policy = policy_of("quantise:bits=4", "quantise:bits=4");
  policy.warm_up_steps = 3;
  for (const int members : kMembers) expect_as_model<float>(policy, members);
}

// T21 of AC-SGD: nothing is lost but what the residuals hold.
void expect_nothing_lost(const GradientPolicy& policy, int members) {
  constexpr std::uint64_t kSteps = 4;
  std::vector<NamedFloats> states(static_cast<std::size_t>(members));
  std::vector<Blocks<float>> missing(states.size());  // by rank: given minus sums
  run_ranks(members, [&](Transport& transport) {
    const auto self = static_cast<std::size_t>(transport.rank());
    Member member(transport, policy, kBlocks);
    for (const BlockLayout& block : kBlocks) missing[self].emplace_back(elements_of(block));
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto all = all_gradients<float>(kBlocks, members, step);
      auto values = all[self];
      member.exchange(step, values);
      member.sum->commit();
      for (std::size_t b = 0; b < values.size(); ++b)
        for (std::size_t i = 0; i < values[b].size(); ++i) {
          missing[self][b][i] -= values[b][i];
          for (const auto& rank : all) missing[self][b][i] += rank[b][i];
        }
    }
    states[self] = member.sum->save();
  });
  const std::string name = fmt::format("{} {}, {} members", to_text(policy.up),
                                       name_in(kSumAlgorithmNames, policy.algorithm), members);
  for (const auto& other : missing) expect_same(missing[0], other, name);
  const NamedFloats owed = reshard(states, 1, policy, kBlocks)[0];
  EXPECT_EQ(owed.empty(), members == 1) << name;
  for (std::size_t b = 0; b < kBlocks.size(); ++b) {
    const auto at = owed.find(kBlocks[b].name + ".down");
    for (std::size_t i = 0; i < missing[0][b].size(); ++i)
      ASSERT_NEAR(missing[0][b][i], at == owed.end() ? 0 : at->second[i], 1e-4)
          << name << ", " << kBlocks[b].name << " " << i;
  }
}

TEST(GradientSum, WhatIsMissingFromTheSumsIsOwed) {
  for (const int members : {1, 2, 3, 8}) {
    for (const auto& [up, down] : kLossy) expect_nothing_lost(policy_of(up, down), members);
    for (const auto algorithm : {SumAlgorithm::ring, SumAlgorithm::doubling}) {
      GradientPolicy policy = policy_of("random_k:keep=0.2");
      policy.algorithm = algorithm;
      expect_nothing_lost(policy, members);
    }
  }
}

TEST(GradientSum, WhatIsNotFiniteReachesEverybodyAndLeavesNoTrace) {
  for (const std::string codec : {"raw", "quantise:bits=4", "sign", "top_k:keep=0.1"}) {
    const GradientPolicy policy = policy_of(codec, codec);
    run_ranks(3, [&](Transport& transport) {
      SumModel<float> model(policy, kBlocks, 3);
      Member member(transport, policy, kBlocks);
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto bad = gradients<float>(kBlocks, transport.rank(), 50 + step);
        if (transport.rank() == 1) bad[1][900 * step] = kInfinity;
        member.exchange(step, bad);
        EXPECT_FALSE(std::isfinite(bad[1][900 * step])) << codec;
        member.sum->abandon();
        auto values = gradients<float>(kBlocks, transport.rank(), step);
        member.exchange(step, values);
        member.sum->commit();
        expect_same(model.sum(step, all_gradients<float>(kBlocks, 3, step)), values, codec);
        model.commit();
      }
      expect_same_state(model.state(transport.rank()), member.sum->save(), codec);
    });
  }
}

// --- posting

TEST(GradientSum, PostingWaitsForNobody) {
  const GradientPolicy policy = policy_of("quantise:bits=4", "quantise:bits=4");
  SumModel<float> model(policy, kBlocks, 2);
  const Blocks<float> expected = model.sum(0, all_gradients<float>(kBlocks, 2, 0));
  model.commit();
  std::atomic<bool> posted = false;
  run_ranks(2, [&](Transport& transport) {
    Member member(transport, policy, kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    if (transport.rank() == 1)
      while (!posted) std::this_thread::yield();
    member.sum->begin(0);
    for (std::size_t b = 0; b < values.size(); ++b)
      member.sum->post(b, reinterpret_cast<std::byte*>(values[b].data()));
    if (transport.rank() == 0) posted = true;
    member.sum->wait();
    member.engine.flush();
    expect_same(expected, values, "posted early");
    member.sum->commit();
    expect_same_state(model.state(transport.rank()), member.sum->save(), "posted early");
  });
}

// Stochastic rounding errs in both directions, and errors of members that draw apart average out.
// Were the draws of all members the same, all would err in the same direction, and the error of
// the sum would be as many times larger as there are members.
TEST(GradientSum, MembersAndBlocksDrawApart) {
  constexpr int kRanks = 8;
  constexpr std::size_t kElements = 4096;
  const std::vector<BlockLayout> blocks = {{"a", {{"x", {Dtype::f32, {kElements}}}}},
                                           {"b", {{"y", {Dtype::f32, {kElements}}}}}};
  GradientPolicy policy = policy_of("quantise:bits=2,grid=ends,rounding=stochastic");
  policy.up_feedback = true;
  std::vector<NamedFloats> states(kRanks);
  run_ranks(kRanks, [&](Transport& transport) {
    Member member(transport, policy, blocks);
    auto values = gradients<float>(blocks, 0, 0);  // the same numbers everywhere
    values[1] = values[0];
    member.exchange(0, values);
    member.sum->commit();
    states[static_cast<std::size_t>(transport.rank())] = member.sum->save();
  });
  double apart = 0, together = 0;  // squares: of members by themselves, and of their sum
  double blocks_together = 0;      // and of the two blocks of each member
  for (std::size_t i = 0; i < kElements; ++i) {
    double sum = 0;
    for (const NamedFloats& state : states) {
      const double a = state.at("a.up")[i], b = state.at("b.up")[i];
      apart += a * a;
      sum += a;
      blocks_together += (a + b) * (a + b);
    }
    together += sum * sum;
  }
  ASSERT_GT(apart, 0);
  EXPECT_NEAR(together / apart, 1, 0.3);         // 1 if independent, 7 if the same
  EXPECT_NEAR(blocks_together / apart, 2, 0.3);  // 2 if independent, 4 if the same
}

// --- counting

// What the direct sum of a block costs member `self`: its contribution to every chunk but its own,
// and the sum of its own to everybody.
Count direct_count(const GradientPolicy& policy, const BlockLayout& block, int members, int self) {
  const auto offsets = offsets_of(policy, elements_of(block), members);
  Count count;
  const auto send = [&](int chunk, const CodecSpec& codec) {
    const auto c = static_cast<std::size_t>(chunk);
    const auto elements = static_cast<std::int64_t>(offsets[c + 1] - offsets[c]);
    const FrameHeader header{.codec = codec, .tensor = {Dtype::f32, {elements}}};
    count += {1, static_cast<std::uint64_t>(elements) * 4,
              wire_bytes(max_frame_bytes(header), EngineOptions().segment_bytes)};
  };
  for (int other = 0; other < members; ++other) {
    if (other == self) continue;
    send(other, policy.up);
    send(self, policy.down);
  }
  return count;
}

TEST(GradientSum, CountersEqualTheFormulas) {
  for (const auto& [up, down] : {std::pair{"raw", "raw"},
                                 {"quantise:bits=4", "quantise:bits=4"},
                                 {"half", "half"},
                                 {"sign", "quantise:bits=8"}})
    for (const int members : {2, 3, 8}) {
      const GradientPolicy policy = policy_of(up, down);
      run_ranks(members, [&](Transport& transport) {
        Member member(transport, policy, kBlocks);
        auto values = gradients<float>(kBlocks, transport.rank(), 0);
        member.exchange(0, values);
        Count expected;
        for (const BlockLayout& block : kBlocks)
          expected += direct_count(policy, block, members, transport.rank());
        const Count count = sent(member.engine.meter().read(), Traffic::dp_gradient);
        EXPECT_EQ(count.messages, expected.messages) << up;
        EXPECT_EQ(count.raw_bytes, expected.raw_bytes) << up;
        EXPECT_EQ(count.wire_bytes, expected.wire_bytes) << up;
        member.sum->commit();
      });
    }
}

// --- state

TEST(GradientSum, ARestartContinuesBitForBit) {
  const GradientPolicy policy = policy_of("quantise:bits=4", "quantise:bits=4");
  run_ranks(3, [&](Transport& transport) {
    Member plain(transport, policy, kBlocks);
    std::vector<Blocks<float>> expected;
    for (std::uint64_t step = 0; step < 4; ++step) {
      expected.push_back(gradients<float>(kBlocks, transport.rank(), step));
      plain.exchange(step, expected.back());
      plain.sum->commit();
    }
    NamedFloats state;
    for (std::uint64_t step = 0; step < 4; ++step) {
      plain.sum = make_gradient_sum(plain.progress_thread, {0, 1, 2}, policy, Traffic::dp_gradient,
                                    kBlocks, Dtype::f32);
      plain.sum->load(state);
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      plain.exchange(step, values);
      plain.sum->commit();
      expect_same(expected[step], values, "after a restart");
      state = plain.sum->save();
    }
  });
}

TEST(GradientSum, RefusesAStateThatIsNotItsOwn) {
  run_ranks(2, [&](Transport& transport) {
    Member member(transport, policy_of("quantise:bits=4", "raw"), kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    member.exchange(0, values);
    member.sum->commit();
    const NamedFloats good = member.sum->save();
    NamedFloats bad = good;
    bad["embedding.up"].pop_back();
    bad["head.up"][3] = kInfinity;
    bad["layer.down"] = {1};
    try {
      member.sum->load(bad);
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(),
                   "embedding.up: 2414 numbers instead of 2415\n"
                   "head.up: has numbers that are not finite\n"
                   "layer.down: is nothing that this policy remembers");
    }
    EXPECT_EQ(member.sum->save(), good);
  });
}

TEST(GradientSum, ALoneRankPaysWhatIsOwedOnce) {
  run_ranks(1, [&](Transport& transport) {
    Member member(transport, policy_of("quantise:bits=4", "quantise:bits=4"), kBlocks);
    const NamedFloats owed = {{"small.down", {1, 2, 3, 4, 5, 6, 7}}};
    member.sum->load(owed);
    const auto given = gradients<float>(kBlocks, 0, 0);
    for (const bool finite : {false, true}) {
      auto values = given;
      member.exchange(0, values);
      for (std::size_t i = 0; i < 7; ++i)
        EXPECT_EQ(values[2][i], given[2][i] + owed.at("small.down")[i]);
      finite ? member.sum->commit() : member.sum->abandon();
      EXPECT_EQ(member.sum->save(), finite ? NamedFloats() : owed);
    }
    auto values = given;
    member.exchange(1, values);
    expect_same(given, values, "nothing is owed");
  });
}

// --- ending

// As when the computing thread throws between post() and wait(): its buffers go with the sum, while
// the progress thread stays and the others' messages still come.
TEST(GradientSum, NobodyTouchesTheBuffersOfASumThatIsGone) {
  for (const GradientPolicy& policy :
       {GradientPolicy{}, policy_of("quantise:bits=4", "quantise:bits=4"),
        GradientPolicy{.method = ReduceMethod::power_sgd, .rank = 4},
        GradientPolicy{.method = ReduceMethod::power_sgd, .rank = 4, .by_block = true}}) {
    const auto transports = make_in_process(2);
    Member gone(*transports[0], policy, kBlocks);
    auto values = gradients<float>(kBlocks, 0, 0);
    gone.sum->begin(0);
    for (std::size_t b = 0; b < values.size(); ++b)
      gone.sum->post(b, reinterpret_cast<std::byte*>(values[b].data()));
    gone.sum.reset();
    for (auto& block : values) std::ranges::fill(block, 7.0F);
    const auto untouched = values;

    {
      Member other(*transports[1], policy, kBlocks);
      auto others = gradients<float>(kBlocks, 1, 0);
      other.sum->begin(0);
      for (std::size_t b = 0; b < others.size(); ++b)
        other.sum->post(b, reinterpret_cast<std::byte*>(others[b].data()));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_NO_THROW(gone.engine.flush());
      other.sum.reset();
    }
    expect_same(untouched, values, to_text(policy.up));
  }
}

}  // namespace
}  // namespace laconic
