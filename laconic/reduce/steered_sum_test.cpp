#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/reduce/test_sums.hpp"

namespace laconic {
namespace {

using namespace test;

const CodecOverride kBypassed{.is_bypassed = true};

CodecOverride by(const char* codec) {
  return {.codec = parse_codec(codec)};
}

struct Row {
  const char* name;
  GradientPolicy policy;
  CodecOverride another;  // codec, if the policy can have one
};

GradientPolicy policy_by(const char* codec) {
  return {.up = parse_codec(codec), .down = parse_codec(codec)};
}

std::vector<Row> rows() {
  std::vector<Row> all = {
      {"quantise", policy_by("quantise:bits=2"), by("quantise:bits=6")},
      {"another block", policy_by("quantise:bits=4"), by("quantise:bits=4,block=384")},
      {"another kind", policy_by("sign"), by("quantise:bits=8")},
      {"sums passed on", policy_by("random_k:keep=0.2"), by("random_k:keep=0.5")},
      {"exact way down", policy_by("top_k:keep=0.1"), by("top_k:keep=0.4")},
      {"warm-up", policy_by("quantise:bits=3"), by("quantise:bits=5")},
      {"power_sgd", {.method = ReduceMethod::power_sgd, .rank = 2}, {}},
      {"power_sgd, factors", policy_by("quantise:bits=4"), by("quantise:bits=8")}};
  all[4].policy.down = Raw{};
  all[5].policy.warm_up_steps = 2;
  all[7].policy.method = ReduceMethod::power_sgd;
  all[7].policy.rank = 2;
  return all;
}

// When an override begins, and whether the step is committed.
struct Change {
  std::uint64_t step;
  CodecOverride codec_override;
};

std::vector<std::vector<Change>> plans(const CodecOverride& another) {
  return {{{0, kBypassed}},
          {{3, kBypassed}},
          {{3, another}},
          {{1, another}, {3, kBypassed}, {5, {}}},
          {{2, kBypassed}, {4, another}}};
}

constexpr std::uint64_t kSteps = 7;
constexpr std::uint64_t kAbandoned = 3;  // a step that is taken back: whatever was owed, still is

template <class T>
void expect_model(const Row& row, const std::vector<Change>& plan, int members) {
  const std::string where = fmt::format("{}, {} members, {} at step {}", row.name, members,
                                        to_text(plan[0].codec_override), plan[0].step);
  run_ranks(members, [&](Transport& transport) {
    Member member(transport, row.policy, kBlocks, kDtypeOf<T>);
    SumModel<T> model(row.policy, kBlocks, members);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (const Change& change : plan)
        if (change.step == step) {
          member.sum->override_codec(change.codec_override);
          model.override_codec(change.codec_override);
        }
      auto values = gradients<T>(kBlocks, transport.rank(), step);
      member.exchange(step, values);
      expect_same(model.sum(step, all_gradients<T>(kBlocks, members, step)), values,
                  fmt::format("{}, step {}", where, step));
      if (step == kAbandoned) {
        member.sum->abandon();
        model.abandon();
      } else {
        member.sum->commit();
        model.commit();
      }
      expect_same_state(model.state(transport.rank()), member.sum->save(), where);
    }
  });
}

// A shadow in front of every step, whatever is owed and whichever way sums go: the plain sum, and
// the steps after it are those of a model that has never heard of shadows.
TEST(SteeredSum, AShadowIsThePlainSumAndLeavesNoTrace) {
  constexpr int kRanks = 3;
  for (const Row& row : rows())
    for (const auto& plan : plans(row.another.codec ? row.another : kBypassed))
      run_ranks(kRanks, [&](Transport& transport) {
        Member member(transport, row.policy, kBlocks);
        SumModel<float> model(row.policy, kBlocks, kRanks), plain({}, kBlocks, kRanks);
        for (std::uint64_t step = 0; step < kSteps; ++step) {
          for (const Change& change : plan)
            if (change.step == step) {
              member.sum->override_codec(change.codec_override);
              model.override_codec(change.codec_override);
            }
          const std::string where = fmt::format("{}, step {}", row.name, step);
          const auto all = all_gradients<float>(kBlocks, kRanks, step);
          auto shadow = gradients<float>(kBlocks, transport.rank(), step), values = shadow;
          member.sum->measure_fidelity(true);
          member.sum->begin_shadow(step);
          for (std::size_t b = 0; b < shadow.size(); ++b)
            member.sum->post(b, reinterpret_cast<std::byte*>(shadow[b].data()));
          member.sum->wait();
          EXPECT_EQ(member.sum->fidelity(), Fidelity()) << where;
          member.sum->abandon();
          expect_same(plain.sum(step, all), shadow, "shadow of " + where);
          plain.commit();
          member.exchange(step, values);
          expect_same(model.sum(step, all), values, where);
          member.sum->commit();
          model.commit();
          expect_same_state(model.state(transport.rank()), member.sum->save(), where);
        }
      });
}

TEST(SteeredSum, IsThatOfAModelInOneProcessWhateverItIsTold) {
  for (const Row& row : rows())
    for (const auto& plan : plans(row.another))
      for (const int members : {2, 3}) {
        expect_model<float>(row, plan, members);
        if (row.policy.method == ReduceMethod::codec) expect_model<double>(row, plan, members);
      }
}

// The sums of all steps are those of all contributions: nothing that was owed is lost for ever.
TEST(SteeredSum, WhatIsOwedLeavesWithTheFirstWholeSum) {
  for (const Row& row : rows())
    run_ranks(3, [&](Transport& transport) {
      Member member(transport, row.policy, kBlocks);
      Blocks<double> true_sums(kBlocks.size()), sums(kBlocks.size());
      for (std::uint64_t step = 0; step < 5; ++step) {
        if (step == 4) {
          EXPECT_FALSE(member.sum->save().empty());
          member.sum->override_codec(kBypassed);
        }
        auto values = gradients<float>(kBlocks, transport.rank(), step);
        member.exchange(step, values);
        member.sum->commit();
        for (std::size_t b = 0; b < kBlocks.size(); ++b) {
          sums[b].resize(values[b].size());
          true_sums[b].resize(values[b].size());
          for (std::size_t i = 0; i < values[b].size(); ++i) sums[b][i] += values[b][i];
          for (const auto& rank : all_gradients<float>(kBlocks, 3, step))
            for (std::size_t i = 0; i < values[b].size(); ++i) true_sums[b][i] += rank[b][i];
        }
      }
      for (std::size_t b = 0; b < kBlocks.size(); ++b)
        for (std::size_t i = 0; i < sums[b].size(); ++i)
          ASSERT_NEAR(sums[b][i], true_sums[b][i], 1e-4) << row.name << ", block " << b;
      for (const auto& [name, values] : member.sum->save())
        EXPECT_TRUE(name.ends_with(".basis")) << row.name << ": " << name;
    });
}

TEST(SteeredSum, FromTheBeginningIsThePlainSumByItsOwnAlgorithm) {
  GradientPolicy policy = policy_by("quantise:bits=2");
  policy.raw_algorithm = SumAlgorithm::ring;
  run_ranks(4, [&](Transport& transport) {
    Member steered(transport, policy, kBlocks);
    steered.sum->override_codec(kBypassed);
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      steered.exchange(step, values);
      steered.sum->commit();
    }
    EXPECT_TRUE(steered.sum->save().empty());
    const Count count = sent(steered.engine.meter().read(), Traffic::dp_gradient);
    EXPECT_GT(count.wire_bytes, count.raw_bytes);  // frames
  });
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<Blocks<float>> plain(4), steered(4);
    run_ranks(4, [&](Transport& transport) {
      Member member(transport, {.algorithm = SumAlgorithm::ring}, kBlocks);
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      member.exchange(step, values);
      plain[static_cast<std::size_t>(transport.rank())] = values;
    });
    run_ranks(4, [&](Transport& transport) {
      Member member(transport, policy, kBlocks);
      member.sum->override_codec(kBypassed);
      auto values = gradients<float>(kBlocks, transport.rank(), step);
      member.exchange(step, values);
      steered[static_cast<std::size_t>(transport.rank())] = values;
    });
    for (std::size_t r = 0; r < 4; ++r) expect_same(plain[r], steered[r], "rank");
  }
}

TEST(SteeredSum, GoesOnFromWhatItSavedWhetherLoadedBeforeOrAfterItIsOverridden) {
  for (const Row& row : rows())
    for (const bool is_treated_first : {false, true}) {
      std::vector<NamedFloats> states(2);
      run_ranks(2, [&](Transport& transport) {
        Member member(transport, row.policy, kBlocks);
        for (std::uint64_t step = 0; step < 3; ++step) {
          auto values = gradients<float>(kBlocks, transport.rank(), step);
          member.exchange(step, values);
          member.sum->commit();
        }
        states[static_cast<std::size_t>(transport.rank())] = member.sum->save();
      });
      SumModel<float> model(row.policy, kBlocks, 2);
      for (std::uint64_t step = 0; step < 3; ++step) {
        model.sum(step, all_gradients<float>(kBlocks, 2, step));
        model.commit();
      }
      model.override_codec(kBypassed);
      const Blocks<float> expected = model.sum(3, all_gradients<float>(kBlocks, 2, 3));
      run_ranks(2, [&](Transport& transport) {
        Member member(transport, row.policy, kBlocks);
        if (is_treated_first) member.sum->override_codec(kBypassed);
        member.sum->load(states[static_cast<std::size_t>(transport.rank())]);
        if (!is_treated_first) member.sum->override_codec(kBypassed);
        auto values = gradients<float>(kBlocks, transport.rank(), 3);
        member.exchange(3, values);
        expect_same(expected, values, row.name);
      });
    }
}

TEST(SteeredSum, RanksThatAreTreatedDifferentlyDoNotTakeOneForTheOther) {
  const auto exchange = [&](Transport& transport) {
    Member member(transport, policy_by("quantise:bits=4"), kBlocks);
    if (transport.rank() == 1) member.sum->override_codec(by("quantise:bits=6"));
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    member.exchange(0, values);
  };
  EXPECT_THROW(run_ranks(2, exchange), WireError);
}

TEST(SteeredSum, WhatCannotBeIsRefused) {
  const GradientPolicy quantise = policy_by("quantise:bits=4");
  const auto problems = [](const CodecOverride& codec_override, const GradientPolicy& policy) {
    return check(codec_override, policy, Dtype::f32, 2).size();
  };
  EXPECT_EQ(problems({}, quantise), 0U);
  EXPECT_EQ(problems(kBypassed, quantise), 0U);
  EXPECT_EQ(problems(kBypassed, {}), 0U);
  EXPECT_EQ(problems(by("sign"), quantise), 0U);
  EXPECT_EQ(problems(by("raw"), quantise), 1U);
  EXPECT_EQ(problems(by("quantise:bits=4"), {}), 1U);          // of messages that lose nothing
  EXPECT_EQ(problems(by("random_k:keep=0.5"), quantise), 1U);  // residuals lie elsewhere
  EXPECT_GE(problems(by("low_rank:rank=2"), quantise), 1U);    // no matrices here
  run_ranks(2, [&](Transport& transport) {
    Member member(transport, quantise, kBlocks);
    EXPECT_THROW(member.sum->override_codec(by("raw")), ConfigError);
  });
}

}  // namespace
}  // namespace laconic
