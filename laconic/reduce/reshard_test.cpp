#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/reduce/test_sums.hpp"

namespace laconic {
namespace {

using namespace test;

const std::vector<GradientPolicy>& policies() {
  static const std::vector<GradientPolicy> all = {
      {.up = Quantise{.bits = 4}, .down = Quantise{.bits = 4}},
      {.up = Quantise{.bits = 4}, .down = Raw{}},
      {.up = Raw{}, .down = Quantise{.bits = 4}},
      {.up = TopK{}, .down = Half{}},
      {.up = RandomK{}, .down = RandomK{}},
      {.up = Half{}, .down = Half{}, .up_feedback = false},
      {.up = Half{}, .down = Half{}, .down_feedback = false},
      {.method = ReduceMethod::power_sgd, .rank = 4}};
  return all;
}

std::string text_of(const GradientPolicy& policy) {
  if (policy.method == ReduceMethod::power_sgd) return "power_sgd";
  return fmt::format("{} {} {} {}", to_text(policy.up), to_text(policy.down), policy.up_feedback,
                     policy.down_feedback);
}

// States as they could be after some steps: zero where an owner does not encode.
std::vector<NamedFloats> some_states(const GradientPolicy& policy, int members) {
  SumModel<float> model(policy, kBlocks, members);
  for (std::uint64_t step = 0; step < 3; ++step) {
    model.sum(step, all_gradients<float>(kBlocks, members, step));
    model.commit();
  }
  std::vector<NamedFloats> states;
  for (int w = 0; w < members; ++w) states.push_back(model.state(w));
  return states;
}

// What is outstanding at every element, written out from the meaning of the states.
std::vector<std::vector<double>> owed(const GradientPolicy& policy,
                                      const std::vector<NamedFloats>& states) {
  std::vector<std::vector<double>> totals;
  for (const BlockLayout& block : kBlocks) {
    std::vector<double> total(elements_of(block));
    const auto add = [&](std::size_t w, const std::string& name, std::uint64_t offset) {
      const auto values = states[w].find(name);
      if (values == states[w].end()) return;
      for (std::size_t i = 0; i < values->second.size(); ++i)
        total.at(offset + i) += values->second[i];
    };
    const auto offsets = offsets_of(policy, total.size(), static_cast<int>(states.size()));
    for (std::size_t w = 0; w < states.size(); ++w) {
      add(w, block.name + ".up", 0);
      add(w, block.name + ".down", offsets[w]);
      std::uint64_t offset = 0;
      for (const NamedTensor& tensor : block.tensors) {
        add(w, tensor.name + ".residual", offset);
        offset += elements_of(tensor.tensor);
      }
    }
    totals.push_back(total);
  }
  return totals;
}

TEST(Reshard, EquallyManyRanksContinueAsTheyWere) {
  for (const GradientPolicy& policy : policies())
    for (const int members : kMembers) {
      const auto states = some_states(policy, members);
      EXPECT_EQ(reshard(states, members, policy, kBlocks), states) << text_of(policy);
    }
}

TEST(Reshard, WhatIsOutstandingStaysTheSame) {
  for (const GradientPolicy& policy : policies())
    for (const int before : {2, 3, 4, 8}) {
      const auto states = some_states(policy, before);
      const auto expected = owed(policy, states);
      for (const int after : kMembers) {
        const auto actual = owed(policy, reshard(states, after, policy, kBlocks));
        double outstanding = 0;
        for (std::size_t b = 0; b < expected.size(); ++b)
          for (std::size_t i = 0; i < expected[b].size(); ++i) {
            outstanding += std::abs(expected[b][i]);
            // A few roundings to f32, none of them larger than that of the total.
            ASSERT_NEAR(actual[b][i], expected[b][i], 1.2e-7 * std::abs(expected[b][i]))
                << text_of(policy) << ", " << before << " to " << after << ", block " << b;
          }
        EXPECT_GT(outstanding, 1) << text_of(policy);
      }
    }
}

// From one rank that has not yet paid.
TEST(Reshard, ALoneRankHandsOnWhatItOwes) {
  for (const GradientPolicy& policy : policies()) {
    const auto lone = reshard(some_states(policy, 4), 1, policy, kBlocks);
    const auto expected = owed(policy, lone);
    for (const int after : kMembers) {
      const auto actual = owed(policy, reshard(lone, after, policy, kBlocks));
      for (std::size_t b = 0; b < expected.size(); ++b)
        for (std::size_t i = 0; i < expected[b].size(); ++i)
          ASSERT_NEAR(actual[b][i], expected[b][i], 1.2e-7 * std::abs(expected[b][i]));
    }
  }
}

// Shares are equal: no rank is handed more than its part, nor less.
TEST(Reshard, EverybodyTakesTheSameShare) {
  const GradientPolicy& policy = policies()[0];
  const auto states = some_states(policy, 2);
  const auto total = owed(policy, states)[1];
  const auto after = reshard(states, 4, policy, kBlocks);
  const auto offsets = offsets_of(policy, total.size(), 4);
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t i = 0; i < total.size(); ++i) {
      const bool owns = i >= offsets[w] && i < offsets[w + 1];
      EXPECT_FLOAT_EQ(after[w].at("layer.up")[i], owns ? 0 : static_cast<float>(total[i] / 4));
      if (owns) {
        EXPECT_NEAR(after[w].at("layer.down")[i - offsets[w]], total[i] / 4,
                    2e-7 * std::abs(total[i]));
      }
    }
}

// Equal shares of a whole number may be rounded. The last taker has the rest, and nothing is lost,
// not even by a rounding.
TEST(Reshard, TheRestOfEqualSharesIsSomebodys) {
  for (const GradientPolicy& policy : {policies()[0], policies()[4], policies().back()}) {
    auto states = some_states(policy, 2);
    for (NamedFloats& state : states)
      for (auto& [name, values] : state)
        if (!name.ends_with(".basis"))
          for (float& value : values) value = std::round(8 * value);
    const auto expected = owed(policy, states);
    std::size_t inexact = 0;  // elements whose equal shares would not add up
    for (const int after : {3, 5, 7}) {
      const auto actual = owed(policy, reshard(states, after, policy, kBlocks));
      for (std::size_t b = 0; b < expected.size(); ++b)
        for (std::size_t i = 0; i < expected[b].size(); ++i) {
          ASSERT_EQ(actual[b][i], expected[b][i])
              << text_of(policy) << ", 2 to " << after << ", block " << b << ", element " << i;
          const double share = static_cast<float>(expected[b][i] / after);
          inexact += share * after != expected[b][i] ? 1 : 0;
        }
    }
    EXPECT_GT(inexact, 100U) << text_of(policy);
  }
}

TEST(Reshard, BasesAreThoseOfTheFirst) {
  const GradientPolicy& policy = policies().back();
  const auto states = some_states(policy, 3);
  for (const int after : {2, 8})
    for (const NamedFloats& state : reshard(states, after, policy, kBlocks))
      EXPECT_EQ(state.at("weight.basis"), states[0].at("weight.basis"));
}

TEST(Reshard, NothingBecomesNothing) {
  for (const GradientPolicy& policy : policies())
    for (const int after : kMembers)
      for (const NamedFloats& state : reshard(std::vector<NamedFloats>(3), after, policy, kBlocks))
        EXPECT_TRUE(state.empty());
}

// The states are what the new ranks' sums take, and what they then hand out is all that went in.
TEST(Reshard, NewRanksGoOnWithoutLosingAnything) {
  for (const GradientPolicy& policy : policies()) {
    if (!policy.up_feedback || !policy.down_feedback) continue;
    for (const int before : {2, 3}) {
      const auto old = some_states(policy, before);
      for (const int after : kMembers) {
        const auto states = reshard(old, after, policy, kBlocks);
        std::vector<NamedFloats> saved(states.size());
        Blocks<float> sums;
        run_ranks(after, [&](Transport& transport) {
          const auto self = static_cast<std::size_t>(transport.rank());
          Member member(transport, policy, kBlocks);
          member.sum->load(states[self]);
          expect_same_state(states[self], member.sum->save(), text_of(policy));
          auto values = gradients<float>(kBlocks, transport.rank(), 7);
          member.exchange(7, values);
          member.sum->commit();
          saved[self] = member.sum->save();
          if (self == 0) sums = values;
        });
        const auto owed_before = owed(policy, states), owed_after = owed(policy, saved);
        const auto all = all_gradients<float>(kBlocks, after, 7);
        for (std::size_t b = 0; b < sums.size(); ++b)
          for (std::size_t i = 0; i < sums[b].size(); ++i) {
            double given = owed_before[b][i];
            for (const auto& rank : all) given += rank[b][i];
            ASSERT_NEAR(sums[b][i] + owed_after[b][i], given, 2e-5)
                << text_of(policy) << ", " << before << " to " << after << ", block " << b;
          }
      }
    }
  }
}

TEST(Reshard, RefusesStatesThatDoNotFit) {
  const GradientPolicy& policy = policies()[0];
  auto states = some_states(policy, 2);
  states[1]["layer.up"].pop_back();
  states[0]["layer.sideways"] = {1};
  try {
    reshard(states, 4, policy, kBlocks);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "member 0: layer.sideways: is nothing that this policy remembers\n"
                 "member 1: layer.up: 2244 numbers instead of 2245");
  }
}

// What one rank still owes cannot be shared among ranks that remember nothing.
TEST(Reshard, APolicyWithoutMemoriesRefusesWhatIsOutstanding) {
  const NamedFloats lone = {{"small.down", std::vector<float>(7, 1.0F)}};
  for (const GradientPolicy& policy :
       {GradientPolicy{},
        GradientPolicy{
            .up = Half{}, .down = Half{}, .up_feedback = false, .down_feedback = false}}) {
    for (const int members : {1, 3})
      EXPECT_THROW(reshard({lone}, members, policy, kBlocks), ConfigError) << members;
    EXPECT_THROW(make_lone_sum(policy, kBlocks, Dtype::f32)->load(lone), ConfigError);
  }
  const NamedFloats bias = {{"bias.residual", std::vector<float>(44, 1.0F)}};  // travels raw
  const GradientPolicy power{.method = ReduceMethod::power_sgd, .rank = 4};
  EXPECT_THROW(reshard({bias}, 3, power, kBlocks), ConfigError);
}

}  // namespace
}  // namespace laconic
