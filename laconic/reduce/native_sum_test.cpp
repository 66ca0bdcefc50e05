#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/reduce/test_summing.hpp"
#include "laconic/reduce/test_sums.hpp"

namespace laconic {
namespace {

using namespace test;

TEST(NativeSum, TakesTheSameSequenceOnAllRanksWhateverTheOrderOfPosting) {
  for (const int members : kMembers)
    run_ranks(members, [&](Transport& transport) {
      Summing summing(transport);
      Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto values = gradients<float>(kBlocks, transport.rank(), step);
        member.exchange(step, values);
        step == 1 ? member.sum->abandon() : member.sum->commit();
        expect_same(SumModel<float>({}, kBlocks, members)
                        .sum(step, all_gradients<float>(kBlocks, members, step)),
                    values, fmt::format("{} members", members));
      }
      EXPECT_TRUE(member.sum->save().empty());
    });
}

TEST(NativeSum, CountsWhatAnySumMustSendAndSaysThatItIsComputed) {
  run_ranks(4, [&](Transport& transport) {
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    member.exchange(0, values);
    Count expected;
    for (const BlockLayout& block : kBlocks) {
      const std::uint64_t bytes = 2 * 3 * elements_of(block) * 4 / 4;
      expected += {1, bytes, bytes, bytes};
    }
    const MeterReading reading = member.engine.meter().read();
    EXPECT_EQ(sent(reading, Traffic::dp_gradient), expected);
    EXPECT_GT(reading.times.at(Traffic::dp_gradient).active, 0);
  });
}

TEST(NativeSum, ARankThatGoesAwayIsNamed) {
  run_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 1) return transport.close();
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    try {
      member.exchange(0, values);
      FAIL();
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 1);
    }
  });
}

TEST(NativeSum, HasNothingToLoad) {
  run_ranks(2, [&](Transport& transport) {
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    EXPECT_NO_THROW(member.sum->load({}));
    EXPECT_THROW(member.sum->load({{"layer.up", {1}}}), ConfigError);
  });
}

TEST(NativeSum, NeedsATransportThatSumsOverTheGroup) {
  run_ranks(3, [&](Transport& transport) {
    Summing summing(transport);
    Engine engine(summing);
    ProgressThread progress_thread(engine);
    const auto make = [&] {
      return make_gradient_sum(progress_thread, {0, 1}, {.algorithm = SumAlgorithm::native},
                               Traffic::dp_gradient, kBlocks, Dtype::f32);
    };
    EXPECT_THROW(make(), ConfigError);
  });
}

}  // namespace
}  // namespace laconic
