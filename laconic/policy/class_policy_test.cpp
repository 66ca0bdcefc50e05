#include "laconic/policy/class_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace laconic {
namespace {

RunConfig grid(int pp, int dp) {
  RunConfig config;
  config.mesh.pp = pp;
  config.mesh.dp = dp;
  return config;
}

TEST(ClassPolicy, TheListOfClassesWithAPolicyIsWhole) {
  for (int t = 0; t < kTrafficClasses; ++t) {
    const auto traffic = static_cast<Traffic>(t);
    EXPECT_EQ(class_policy(traffic, RunConfig()).has_value(),
              std::ranges::find(kClassesWithPolicy, traffic) != kClassesWithPolicy.end())
        << name_of(traffic);
  }
}

struct SectionNames {
  std::vector<std::string> names;
  template <class Section>
  void operator()(const char* name, Section&) {
    names.emplace_back(name);
  }
};

// Sections of the configuration are called as the classes: messages to people rely on it.
TEST(ClassPolicy, EveryClassWithAPolicyHasASectionOfItsName) {
  SectionNames sections;
  RunConfig config;
  config.visit(sections);
  for (const Traffic traffic : kClassesWithPolicy)
    EXPECT_NE(std::ranges::find(sections.names, name_of(traffic)), sections.names.end())
        << name_of(traffic);
}

TEST(ClassPolicy, IsUsedWhereTheMeshHasSuchMessages) {
  for (const auto& [pp, dp] : {std::pair{1, 1}, {1, 4}, {4, 1}, {2, 2}})
    for (const bool has_grid : {false, true})
      for (const Traffic traffic : kClassesWithPolicy) {
        RunConfig config = grid(pp, dp);
        if (has_grid) config.mesh.tp = "1,2,1";
        const bool is_of_grid = name_of(traffic).starts_with("tp.");
        const bool is_used = traffic == Traffic::dp_gradient ? dp > 1
                             : is_of_grid                    ? has_grid
                                                             : pp > 1;
        EXPECT_EQ(class_policy(traffic, config)->is_used, is_used)
            << name_of(traffic) << " " << pp << " x " << dp << " " << has_grid;
      }
}

// Weights have one on the way out and one for their gradients.
TEST(ClassPolicy, ThoseOfAGridLoseWhatTheirSectionsSay) {
  RunConfig config = grid(1, 1);
  config.mesh.tp = "1,2,1";
  EXPECT_TRUE(lossy_codecs(*class_policy(Traffic::tp_weight, config)).empty());
  EXPECT_FALSE(is_lossy(*class_policy(Traffic::tp_weight, config)));
  config.tp_weight.gradient = "sign";
  EXPECT_EQ(lossy_codecs(*class_policy(Traffic::tp_weight, config)),
            std::vector<CodecSpec>{Sign{}});
  config.tp_weight.codec = "half";
  EXPECT_EQ(lossy_codecs(*class_policy(Traffic::tp_weight, config)).size(), 2U);
  EXPECT_FALSE(is_lossy(*class_policy(Traffic::tp_gradient, config)));
}

TEST(ClassPolicy, AnEmbeddingWhoseEndsLieOnOneRankIsNotShared) {
  RunConfig config = grid(2, 2);
  const std::pair<const char*, bool> rows[] = {{"gpipe", true},       {"1f1b", true},
                                               {"interleaved", true}, {"zero_bubble", true},
                                               {"zb_v", false},       {"file:unread", true}};
  for (const auto& [schedule, is_shared] : rows) {
    config.pipeline.schedule = schedule;
    config.pipeline.chunks = 2;
    EXPECT_EQ(class_policy(Traffic::embedding_tied, config)->is_used, is_shared) << schedule;
    EXPECT_TRUE(class_policy(Traffic::pp_gradient, config)->is_used) << schedule;
  }
}

// Both settings are about a sum that a V does not have.
TEST(ClassPolicy, AVRefusesNothingForTheSakeOfASharedEmbedding) {
  RunConfig adam = grid(2, 2), rounds = grid(2, 2), low_rank = grid(2, 2), both = grid(2, 2);
  low_rank.local.steps = 2;
  low_rank.embedding_tied.method = GradientMethod::power_sgd;
  both.dp_gradient.method = GradientMethod::compressed_adam;
  both.embedding_tied.method = GradientMethod::power_sgd;
  adam.dp_gradient.method = GradientMethod::compressed_adam;
  adam.embedding_tied.fused = false;
  rounds.local.steps = 2;
  rounds.embedding_tied.codec = "half";
  for (RunConfig* config : {&adam, &rounds, &low_rank, &both}) {
    EXPECT_EQ(check_parallel(*config).size(), 1U) << to_text(check_parallel(*config));
    config->pipeline.schedule = "zb_v";
    config->pipeline.chunks = 2;
    EXPECT_EQ(check_parallel(*config).size(), 0U) << to_text(check_parallel(*config));
  }
}

TEST(ClassPolicy, RanksThatDoNotEncodeHaveExactSums) {
  RunConfig config = grid(4, 2);
  config.dp_gradient.codec = "quantise:bits=4";
  EXPECT_TRUE(is_lossy(*class_policy(Traffic::dp_gradient, config, {.pp = 1, .encoded = 2})));
  EXPECT_FALSE(is_lossy(*class_policy(Traffic::dp_gradient, config, {.pp = 2, .encoded = 2})));
}

TEST(ClassPolicy, OnlySumsThatLoseNothingGoRoundInARingByThemselves) {
  RunConfig config = grid(1, 4);
  EXPECT_EQ(policy_of(config).algorithm, SumAlgorithm::ring);
  config.dp_gradient.codec = "quantise:bits=4";
  EXPECT_EQ(policy_of(config).algorithm, SumAlgorithm::direct);
  EXPECT_EQ(policy_of(config).raw_algorithm, SumAlgorithm::ring);
}

TEST(ClassPolicy, FeedbackIsOfTheWaysThatAreNamed) {
  RunConfig config = grid(1, 4);
  const auto ways = [&](FeedbackOf feedback) {
    config.dp_gradient.feedback = feedback;
    const GradientPolicy policy = policy_of(config);
    return std::pair(policy.up_feedback, policy.down_feedback);
  };
  EXPECT_EQ(ways(FeedbackOf::none), std::pair(false, false));
  EXPECT_EQ(ways(FeedbackOf::up), std::pair(true, false));
  EXPECT_EQ(ways(FeedbackOf::both), std::pair(true, true));
}

TEST(ClassPolicy, LossyCodecsAreThoseOfBothWays) {
  RunConfig config = grid(2, 2);
  EXPECT_TRUE(lossy_codecs(*class_policy(Traffic::dp_gradient, config)).empty());
  config.dp_gradient.codec = "quantise:bits=4";
  config.dp_gradient.down = "half";
  EXPECT_EQ(lossy_codecs(*class_policy(Traffic::dp_gradient, config)),
            (std::vector{parse_codec("quantise:bits=4"), parse_codec("half")}));
}

TEST(ClassPolicy, AClassWithoutOneRefusesToBeTreated) {
  const Problems problems = check(Traffic::control, {.is_bypassed = true}, grid(2, 2));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].where, "control");
}

}  // namespace
}  // namespace laconic
