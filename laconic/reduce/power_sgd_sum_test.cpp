#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/codec/test_matrix.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/reduce/test_sums.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

GradientPolicy power_sgd(std::int64_t rank = 4, std::int64_t warm_up_steps = 0) {
  return {.method = ReduceMethod::power_sgd, .warm_up_steps = warm_up_steps, .rank = rank};
}

std::vector<BlockLayout> one_matrix(std::int64_t rows, std::int64_t columns) {
  return {{"block", {{"matrix", {Dtype::f32, {rows, columns}}}}}};
}

// The sums that all ranks end with after each of some committed steps; every rank has the same.
using Gradients = std::function<Blocks<float>(int rank, std::uint64_t step)>;
std::vector<Blocks<float>> sums_of(const GradientPolicy& policy,
                                   const std::vector<BlockLayout>& blocks, int members,
                                   std::uint64_t steps, const Gradients& gradients,
                                   std::vector<NamedFloats>* states = nullptr) {
  std::vector<std::vector<Blocks<float>>> sums(static_cast<std::size_t>(members));
  if (states != nullptr) states->resize(sums.size());
  run_ranks(members, [&](Transport& transport) {
    const auto self = static_cast<std::size_t>(transport.rank());
    Member member(transport, policy, blocks);
    for (std::uint64_t step = 0; step < steps; ++step) {
      sums[self].push_back(gradients(transport.rank(), step));
      member.exchange(step, sums[self].back());
      member.sum->commit();
    }
    if (states != nullptr) (*states)[self] = member.sum->save();
  });
  for (const auto& rank : sums)
    for (std::size_t step = 0; step < rank.size(); ++step)
      expect_same(sums[0][step], rank[step], "all ranks alike");
  return sums[0];
}

Blocks<float> normal_gradients(int rank, std::uint64_t step) {
  return gradients<float>(kBlocks, rank, step);
}

double length(const std::vector<double>& values) {
  double square = 0;
  for (const double x : values) square += x * x;
  return std::sqrt(square);
}

// --- P1 to P6 of the specification of Optimus-CC, over real collectives

// P1, for sums: what came out plus what all ranks still owe is what went in.
TEST(PowerSgdSum, SumsTelescope) {
  const std::uint64_t steps = 12;
  for (const int members : {2, 3, 4, 8}) {
    std::vector<NamedFloats> states;
    const auto sums = sums_of(power_sgd(), kBlocks, members, steps, normal_gradients, &states);
    const auto matrix = elements_of(kBlocks[1].tensors[0].tensor);
    std::vector<double> given(matrix), missing(matrix), owed(matrix);
    for (std::size_t i = 0; i < matrix; ++i)
      for (const NamedFloats& state : states) owed[i] += state.at("weight.residual")[i];
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto all = all_gradients<float>(kBlocks, members, step);
      for (std::size_t i = 0; i < matrix; ++i) {
        for (const auto& rank : all) given[i] += rank[1][i];
        missing[i] -= sums[step][1][i];
      }
    }
    for (std::size_t i = 0; i < matrix; ++i) missing[i] += given[i] - owed[i];
    EXPECT_LE(length(missing), 1e-5 * length(given)) << members;
    EXPECT_GT(length(owed), 0.1 * length(given)) << members;
  }
}

// P2 and P4.
TEST(PowerSgdSum, WhatDoesNotShrinkIsSummedExactly) {
  for (const int members : {2, 3, 8}) {
    std::vector<NamedFloats> states;
    const auto sums = sums_of(power_sgd(), kBlocks, members, 2, normal_gradients, &states);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const auto all = all_gradients<float>(kBlocks, members, step);
      const auto expect_exact = [&](std::size_t block, std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
          float sum = all[0][block][i];
          for (std::size_t w = 1; w < all.size(); ++w) sum += all[w][block][i];
          ASSERT_EQ(sums[step][block][i], sum) << members << " " << block << " " << i;
        }
      };
      expect_exact(0, 60 * 40, 60 * 40 + 15);      // 3 x 5 would not shrink
      expect_exact(1, 50 * 44, 50 * 44 + 44 + 1);  // bias and gain
      expect_exact(2, 0, 7);
      EXPECT_NE(sums[step][0][0], all[0][0][0] + all[1][0][0]);
    }
    for (const std::string name : {"places", "bias", "gain", "shift"})
      EXPECT_FALSE(states[0].contains(name + ".residual")) << name;
    EXPECT_TRUE(states[0].contains("tokens.residual"));
  }
}

// P3.
TEST(PowerSgdSum, WarmUpIsExactAndOwesNothing) {
  std::vector<NamedFloats> states;
  const auto sums = sums_of(power_sgd(4, 2), kBlocks, 3, 2, normal_gradients, &states);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto all = all_gradients<float>(kBlocks, 3, step);
    for (std::size_t b = 0; b < kBlocks.size(); ++b)
      expect_same<float>({rank_ordered_sum<float>({all[0][b], all[1][b], all[2][b]})},
                         {sums[step][b]}, "warm-up");
  }
  for (const NamedFloats& state : states) EXPECT_TRUE(state.empty());
}

// P5.
TEST(PowerSgdSum, AtFullRankItIsTheSum) {
  GradientPolicy policy = power_sgd(20);
  policy.min_ratio = 0;
  const auto blocks = one_matrix(20, 30);
  for (const int members : {2, 3, 4, 8}) {
    const auto normal = [&](int rank, std::uint64_t step) {
      return gradients<float>(blocks, rank, step);
    };
    const auto reversed = [&](int rank, std::uint64_t step) {
      return normal(members - 1 - rank, step);
    };
    std::vector<std::vector<float>> parts;
    for (int rank = 0; rank < members; ++rank) parts.push_back(normal(rank, 0)[0]);
    const std::vector<float> sum = rank_ordered_sum(parts);
    EXPECT_LE(relative_error(sum, sums_of(policy, blocks, members, 1, normal)[0][0]), 1e-5);
    EXPECT_LE(relative_error(sum, sums_of(policy, blocks, members, 1, reversed)[0][0]), 1e-5);
  }
}

// P6.
TEST(PowerSgdSum, SmallGradientsErrNoMoreThanLargeOnes) {
  GradientPolicy policy = power_sgd(8);
  policy.min_ratio = 0;
  policy.up_feedback = false;
  const std::vector<double> spectrum = decaying(40, 0.8);
  const Matrix a = matrix_with_spectrum(64, 48, spectrum, 2);
  const double best = best_error(spectrum, 8);
  for (const float scale : {1.0F, 1e-4F, 1e-6F}) {
    const auto same = [&](int, std::uint64_t) { return Blocks<float>{scaled(a, scale)}; };
    const auto sums = sums_of(policy, one_matrix(64, 48), 2, 20, same);
    EXPECT_NEAR(relative_error(scaled(a, 2 * scale), sums.back()[0]), best, 1e-4 * best) << scale;
  }
}

// --- against the model

TEST(PowerSgdSum, LosesWhatItsModelLoses) {
  for (const int members : kMembers)
    for (const bool feedback : {true, false}) {
      GradientPolicy policy = power_sgd(4, 1);
      policy.up_feedback = feedback;
      SumModel<float> model(policy, kBlocks, members);
      std::vector<Blocks<float>> expected;
      for (std::uint64_t step = 0; step < 6; ++step) {
        expected.push_back(model.sum(step, all_gradients<float>(kBlocks, members, step)));
        step == 3 ? model.abandon() : model.commit();
      }
      run_ranks(members, [&](Transport& transport) {
        Member member(transport, policy, kBlocks);
        for (std::uint64_t step = 0; step < 6; ++step) {
          auto values = gradients<float>(kBlocks, transport.rank(), step);
          member.exchange(step, values);
          step == 3 ? member.sum->abandon() : member.sum->commit();
          expect_same(expected[step], values, fmt::format("{} members, step {}", members, step));
        }
        expect_same_state(members == 1 ? NamedFloats() : model.state(transport.rank()),
                          member.sum->save(), "state");
      });
    }
}

TEST(PowerSgdSum, BlockByBlockGivesTheSameBits) {
  for (const int members : {2, 3, 8}) {
    GradientPolicy policy = power_sgd(4, 1);
    std::vector<NamedFloats> flat_states, states;
    const auto flat = sums_of(policy, kBlocks, members, 5, normal_gradients, &flat_states);
    policy.by_block = true;
    const auto sums = sums_of(policy, kBlocks, members, 5, normal_gradients, &states);
    for (std::size_t step = 0; step < 5; ++step) expect_same(flat[step], sums[step], "by block");
    for (std::size_t w = 0; w < states.size(); ++w)
      expect_same_state(flat_states[w], states[w], "by block");
    run_ranks(members, [&](Transport& transport) {
      Member member(transport, policy, kBlocks);
      const NamedFloats& state = states[static_cast<std::size_t>(transport.rank())];
      member.sum->load(state);
      expect_same_state(state, member.sum->save(), "loaded");
    });
  }
}

TEST(PowerSgdSum, WhatIsNotFiniteReachesEverybodyAndLeavesNoTrace) {
  run_ranks(3, [&](Transport& transport) {
    SumModel<float> model(power_sgd(), kBlocks, 3);
    Member member(transport, power_sgd(), kBlocks);
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto bad = gradients<float>(kBlocks, transport.rank(), 50 + step);
      if (transport.rank() == 1) bad[0][7] = kNan;
      member.exchange(step, bad);
      for (std::size_t i = 0; i < 60 * 40; ++i) ASSERT_TRUE(std::isnan(bad[0][i]));
      for (const float x : bad[3]) ASSERT_TRUE(std::isfinite(x));
      member.sum->abandon();
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      member.exchange(step, values);
      member.sum->commit();
      expect_same(model.sum(step, all_gradients<float>(kBlocks, 3, step)), values, "afterwards");
      model.commit();
      expect_same_state(model.state(transport.rank()), member.sum->save(), "afterwards");
    }
  });
}

TEST(PowerSgdSum, ARestartContinuesBitForBit) {
  const auto expected = sums_of(power_sgd(4, 1), kBlocks, 3, 5, normal_gradients);
  std::vector<NamedFloats> states(3);
  for (std::uint64_t step = 0; step < 5; ++step)
    run_ranks(3, [&](Transport& transport) {
      NamedFloats& state = states[static_cast<std::size_t>(transport.rank())];
      Member member(transport, power_sgd(4, 1), kBlocks);
      member.sum->load(state);
      auto values = normal_gradients(transport.rank(), step);
      member.exchange(step, values);
      member.sum->commit();
      expect_same(expected[step], values, "after a restart");
      state = member.sum->save();
    });
}

TEST(PowerSgdSum, RefusesTheStateOfAnother) {
  run_ranks(2, [&](Transport& transport) {
    Member member(transport, power_sgd(), kBlocks);
    EXPECT_THROW(member.sum->load({{"bias.residual", {1}}}), ConfigError);
    EXPECT_THROW(member.sum->load({{"tokens.basis", {1}}}), ConfigError);
    EXPECT_TRUE(member.sum->save().empty());
  });
}

// --- counting

// Three flat sums: what does not shrink, n r, m r.
TEST(PowerSgdSum, CountersEqualTheFormulas) {
  const std::uint64_t flat[] = {15 + 44 + 1 + 7, (60 + 50 + 30) * 4, (40 + 44 + 20) * 4};
  std::uint64_t matrices = 0;  // elements that the factors stand for
  for (const BlockLayout& block : kBlocks) matrices += elements_of(block);
  matrices -= flat[0];
  for (const int members : {2, 3, 8})
    run_ranks(members, [&](Transport& transport) {
      Member member(transport, power_sgd(), kBlocks);
      auto values = gradients<float>(kBlocks, transport.rank(), 0);
      member.exchange(0, values);
      member.sum->commit();
      Count expected;
      for (const std::uint64_t elements : flat) {
        const auto offsets = offsets_of(power_sgd(), elements, members);
        const auto send = [&](int chunk) {
          const auto c = static_cast<std::size_t>(chunk);
          const auto size = static_cast<std::int64_t>(offsets[c + 1] - offsets[c]);
          const FrameHeader header{.codec = Raw{}, .tensor = {Dtype::f32, {size}}};
          const double stands_for = elements == flat[0] ? static_cast<double>(elements)
                                                        : static_cast<double>(matrices) / 2;
          expected +=
              {1,
               static_cast<std::uint64_t>(std::llround(
                   static_cast<double>(size * 4) * (stands_for / static_cast<double>(elements)))),
               wire_bytes(max_frame_bytes(header), EngineOptions().segment_bytes)};
        };
        for (int other = 0; other < members; ++other) {
          if (other == transport.rank()) continue;
          send(other);
          send(transport.rank());
        }
      }
      EXPECT_EQ(sent(member.engine.meter().read(), Traffic::dp_gradient), expected);
    });
}

// Three matrices of kBlocks are long enough for low rank.
TEST(PowerSgdSum, WatchedMembersSeeMatricesAndFactorsThatLoseSomething) {
  const struct {
    const char* factors;
    std::int64_t warm_up;
    std::uint64_t least, most;  // messages of a rank and step
  } rows[] = {{"raw", 0, 3, 3}, {"quantise:bits=4", 0, 4, 100}, {"raw", 1, 0, 0}};
  for (const auto& [factors, warm_up, least, most] : rows)
    for (const bool by_block : {false, true}) {
      GradientPolicy policy = power_sgd(4, warm_up);
      policy.by_block = by_block;
      policy.up = policy.down = parse_codec(factors);
      run_ranks(3, [&](Transport& transport) {
        Member member(transport, policy, kBlocks);
        member.sum->measure_fidelity(true);
        Blocks<float> values = gradients<float>(kBlocks, transport.rank(), 0);
        member.exchange(0, values);
        const Fidelity seen = member.sum->fidelity();
        member.sum->commit();
        EXPECT_GE(seen.messages, least) << factors;
        EXPECT_LE(seen.messages, most) << factors;
        EXPECT_EQ(seen.residual > 0, most > 0) << factors;
        member.sum->measure_fidelity(false);
        values = gradients<float>(kBlocks, transport.rank(), 1);
        member.exchange(1, values);
        member.sum->commit();
        EXPECT_EQ(member.sum->fidelity(), seen) << "not watched";
        member.sum->measure_fidelity(true);
        EXPECT_EQ(member.sum->fidelity(), Fidelity());
      });
    }
}

}  // namespace
}  // namespace laconic
