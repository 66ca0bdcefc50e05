#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/reduce/method.hpp"
#include "laconic/reduce/test_sums.hpp"

namespace laconic {
namespace {

using namespace test;

Problems problems_of(const GradientPolicy& policy, Dtype dtype = Dtype::f32) {
  return check(policy, dtype, 4);
}

GradientPolicy with_codec(const std::string& up, const std::string& down = "raw",
                          SumAlgorithm algorithm = SumAlgorithm::direct) {
  return {.up = parse_codec(up), .down = parse_codec(down), .algorithm = algorithm};
}

TEST(GradientPolicy, WorksInManyWays) {
  for (const std::string codec : {"raw", "half", "half:kind=f16", "quantise:bits=1,grid=ends",
                                  "quantise:bits=4", "sign", "top_k:keep=0.01", "random_k:keep=0.1",
                                  "random_k:keep=0.1+half", "top_k:keep=0.1+quantise:bits=4"})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      EXPECT_EQ(problems_of(with_codec(codec), dtype), Problems()) << codec;
      EXPECT_EQ(problems_of(with_codec(codec, codec), dtype), Problems()) << codec;
    }
  for (const auto& [algorithm, name] : kSumAlgorithmNames)
    EXPECT_EQ(problems_of(with_codec("raw", "raw", algorithm)), Problems()) << name;
  for (const auto algorithm : {SumAlgorithm::direct, SumAlgorithm::ring, SumAlgorithm::doubling})
    EXPECT_EQ(problems_of({.method = ReduceMethod::power_sgd, .algorithm = algorithm}), Problems());
  EXPECT_EQ(problems_of(with_codec("random_k:keep=0.1", "raw", SumAlgorithm::ring)), Problems());
}

TEST(GradientPolicy, GpusSumWhatTheyCanDecode) {
  EXPECT_TRUE(gpus_could_sum(with_codec("quantise:bits=4", "quantise"), Dtype::f32, 4));
  EXPECT_FALSE(gpus_could_sum(with_codec("quantise:bits=4,grid=powers"), Dtype::f32, 4));
  EXPECT_FALSE(gpus_could_sum(with_codec("raw", "quantise:bits=4,grid=powers"), Dtype::f32, 4));
  EXPECT_TRUE(gpus_could_sum(with_codec("quantise:bits=4,grid=powers"), Dtype::f32, 1));
  EXPECT_FALSE(gpus_could_sum(with_codec("random_k"), Dtype::f32, 4));
  EXPECT_FALSE(gpus_could_sum(with_codec("raw"), Dtype::f64, 4));
}

// By the keys that have a problem, in order, and the words that matter.
void expect_refused(const GradientPolicy& policy, const std::vector<Problem>& expected,
                    Dtype dtype = Dtype::f32) {
  const Problems problems = problems_of(policy, dtype);
  ASSERT_EQ(problems.size(), expected.size()) << to_text(problems);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(problems[i].where, expected[i].where);
    EXPECT_NE(problems[i].what.find(expected[i].what), std::string::npos) << to_text(problems);
  }
}

TEST(GradientPolicy, CodecsThatNeedMatricesNameTheAlternative) {
  expect_refused(with_codec("low_rank:rank=4"), {{"codec", "power_sgd"}});
  expect_refused(with_codec("raw", "low_rank:rank=4"), {{"down", "power_sgd"}});
  expect_refused(with_codec("auto_encoder:code=8"), {{"codec", "power_sgd"}});
  expect_refused(with_codec("quantise:bits=4,group=row"), {{"codec", "group=block"}});
  expect_refused(with_codec("quantise:bits=4,group=channel"), {{"codec", "group=block"}});
}

TEST(GradientPolicy, PartialSumsAreNotEncodedAgainAndAgain) {
  for (const auto algorithm : {SumAlgorithm::ring, SumAlgorithm::doubling}) {
    expect_refused(with_codec("quantise:bits=4", "raw", algorithm), {{"algorithm", "quantise"}});
    expect_refused(with_codec("raw", "half", algorithm), {{"algorithm", "half"}});
    expect_refused(with_codec("top_k:keep=0.1", "half", algorithm), {{"algorithm", "top_k"}});
  }
}

TEST(GradientPolicy, NativeSumsAreExactSumsOfFloats) {
  expect_refused(with_codec("quantise:bits=4", "raw", SumAlgorithm::native),
                 {{"algorithm", "native"}});
  expect_refused(with_codec("raw", "half", SumAlgorithm::native), {{"algorithm", "native"}});
  expect_refused(with_codec("raw", "raw", SumAlgorithm::native), {{"algorithm", "f64"}},
                 Dtype::f64);
  expect_refused({.method = ReduceMethod::power_sgd, .algorithm = SumAlgorithm::native},
                 {{"algorithm", "codec"}});
}

TEST(GradientPolicy, ACodecThatWouldNeverBeUsedIsRefused) {
  expect_refused(with_codec("random_k:keep=0.1", "half"), {{"down", "passed on"}});
  expect_refused({.method = ReduceMethod::power_sgd, .up = LowRank{}}, {{"codec", "low_rank"}});
}

TEST(GradientPolicy, SaysEverythingAtOnce) {
  GradientPolicy policy = with_codec("low_rank:rank=4", "auto_encoder:code=8", SumAlgorithm::ring);
  policy.warm_up_steps = -1;
  expect_refused(policy,
                 {{"method", "bf16"},
                  {"warmup", "-1"},
                  {"codec", "low_rank"},
                  {"down", "auto_encoder"},
                  {"algorithm", "low_rank"}},
                 Dtype::bf16);
  expect_refused(
      {.method = ReduceMethod::power_sgd, .warm_up_steps = -2, .rank = 0, .min_ratio = -1},
      {{"warmup", "-2"}, {"rank", "0"}, {"min_ratio", "-1"}, {"method", "f64"}}, Dtype::f64);
  policy = {.up = Quantise{.bits = 9}};
  expect_refused(policy, {{"codec", "9"}});
}

TEST(GradientPolicy, NobodyWorksByABadOne) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport);
    ProgressThread progress_thread(engine);
    const auto make = [&](const GradientPolicy& policy) {
      return make_gradient_sum(progress_thread, {0, 1}, policy, Traffic::dp_gradient, kBlocks,
                               Dtype::f32);
    };
    EXPECT_THROW(make({.algorithm = SumAlgorithm::native}),
                 ConfigError);  // in_process has no sum of its own
  });
}

TEST(GradientPolicy, NoGroupOfAQuantiserIsCutInTwo) {
  for (const std::string codec :
       {"quantise:bits=4,block=100", "sign:block=300", "quantise:bits=4", "top_k:keep=0.1"})
    for (const int members : kMembers) {
      const GradientPolicy policy = with_codec(codec, "quantise:bits=8,block=64");
      const auto offsets = offsets_of(policy, 100'000, members);
      ASSERT_EQ(offsets.size(), static_cast<std::size_t>(members) + 1);
      EXPECT_EQ(offsets.back(), 100'000U);
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
        EXPECT_EQ(offsets[i] % 64, 0U);
        if (codec.ends_with("00")) {
          EXPECT_EQ(offsets[i] % 100, 0U) << codec;
        }
      }
    }
}

}  // namespace
}  // namespace laconic
