#include "laconic/steer/steering.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/steer/bypass_judge.hpp"

namespace laconic {
namespace {

const CodecOverride kBypassed{.is_bypassed = true};
const CodecOverride kFiner{.codec = Quantise{.bits = 6}};

RunConfig config_of(const std::vector<std::string>& sets) {
  RunConfig config;
  config.mesh = {.pp = 2, .dp = 2};
  config.mesh.tp = "1,2,1";
  config.steering.bypass = BypassMode::automatic;
  for (const std::string& set : sets) EXPECT_TRUE(apply_set(set, config).empty()) << set;
  return config;
}

const std::vector<std::string> kLossy = {"pp.activation.codec=quantise:bits=4",
                                         "pp.gradient.codec=quantise:bits=4",
                                         "dp.gradient.codec=sign",
                                         "embedding.tied.codec=sign",
                                         "tp.activation.codec=quantise:bits=4",
                                         "tp.gradient.codec=quantise:bits=4",
                                         "tp.weight.gradient=sign"};

TEST(Steering, AStateIsItsText) {
  const SteeringState states[] = {
      {},
      {.overrides = {}, .is_bypass_decided = true},
      {.overrides = {{Traffic::pp_activation, kBypassed}, {Traffic::dp_gradient, kFiner}}}};
  for (const SteeringState& state : states) EXPECT_EQ(parse_steering(to_json(state)), state);
  EXPECT_EQ(parse_steering(""), SteeringState());
  EXPECT_EQ(to_json(states[2]),
            R"({"bypass_decided":false,"treatments":{"dp.gradient":{"codec":"quantise:bits=6"},)"
            R"("pp.activation":{"bypassed":true}}})");
}

TEST(Steering, ATextThatIsNoneIsRefused) {
  for (const char* text :
       {"{", "{}", R"({"bypass_decided":1,"treatments":{}})",
        R"({"bypass_decided":true,"treatments":{"control":{"bypassed":true}}})",
        R"({"bypass_decided":true,"treatments":{"dp.gradient":{}}})",
        R"({"bypass_decided":true,"treatments":{"dp.gradient":{"codec":"gzip"}}})"})
    EXPECT_THROW(parse_steering(text), ConfigError) << text;
}

TEST(Steering, OnlyLossyClassesTakeAnotherCodecAndAllCanBeBypassed) {
  const RunConfig plain = config_of({}), lossy = config_of(kLossy);
  for (const Traffic traffic : kClassesWithPolicy) {
    EXPECT_TRUE(check(traffic, kBypassed, plain).empty());
    EXPECT_TRUE(check(traffic, {}, plain).empty());
    EXPECT_TRUE(check(traffic, kFiner, lossy).empty()) << name_of(traffic);
    for (const Problems& problems :
         {check(traffic, kFiner, plain), check(traffic, {.codec = Raw{}}, lossy)}) {
      ASSERT_EQ(problems.size(), 1U) << name_of(traffic);
      EXPECT_EQ(problems[0].where, std::string(name_of(traffic)) + ".codec");
    }
  }
  EXPECT_FALSE(check(Traffic::control, kBypassed, lossy).empty());
}

// The maps of a run are those of its codes.
TEST(Steering, LearnedCodesCanBeBypassedAndNothingElse) {
  const RunConfig learned = config_of({"tp.activation.codec=auto_encoder:code=8"});
  EXPECT_TRUE(check(Traffic::tp_activation, kBypassed, learned).empty());
  EXPECT_TRUE(is_encoded(Traffic::tp_activation, learned, {0, 2}));
  EXPECT_EQ(check(Traffic::tp_activation, kFiner, learned).size(), 1U);
  EXPECT_EQ(check(Traffic::tp_activation, {.codec = AutoEncoder{}}, config_of(kLossy)).size(), 1U);
}

TEST(Steering, WhatACheckpointSaysIsGoodUntilItsPolicyChanges) {
  const RunConfig config = config_of(kLossy);
  const SteeringState before{
      .overrides = {{Traffic::pp_activation, kBypassed}, {Traffic::dp_gradient, kFiner}},
      .is_bypass_decided = true};
  std::vector<std::string> notes;
  EXPECT_EQ(still_good(before, {"optimiser.lr: 1, now 2"}, config, notes), before);
  EXPECT_TRUE(notes.empty());

  SteeringState after = still_good(before, {"dp.gradient.codec: sign, now half"}, config, notes);
  EXPECT_TRUE(after.overrides.contains(Traffic::pp_activation));
  EXPECT_FALSE(after.overrides.contains(Traffic::dp_gradient));
  EXPECT_FALSE(after.is_bypass_decided);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0],
            "dp.gradient was quantise:bits=6 and goes by the configuration again: its policy or "
            "the mesh has changed");

  // A class that was left as it was may be worth a bypass now.
  notes.clear();
  after = still_good(before, {"pp.gradient.codec: sign, now half"}, config, notes);
  EXPECT_EQ(after.overrides, before.overrides);
  EXPECT_FALSE(after.is_bypass_decided);
  EXPECT_TRUE(notes.empty());

  notes.clear();
  EXPECT_EQ(still_good(before, {"mesh.dp: 2, now 4"}, config, notes), SteeringState());
  EXPECT_EQ(notes.size(), 2U);

  notes.clear();
  RunConfig nobody = config;
  nobody.steering.bypass = BypassMode::never;
  EXPECT_EQ(still_good(before, {"steering.bypass: auto, now never"}, nobody, notes),
            SteeringState());
  EXPECT_EQ(notes.size(), 2U);
}

// Otherwise a run that goes on with "auto" again would stay as it was dropped for ever.
TEST(Steering, ABypassIsDecidedAnewAfterItWasNotAskedForOrDropped) {
  const SteeringState before{.overrides = {{Traffic::pp_activation, kBypassed}},
                             .is_bypass_decided = true};
  std::vector<std::string> notes;
  RunConfig guarded = config_of(kLossy);
  guarded.steering.bypass = BypassMode::never;
  guarded.steering.guard = GuardMode::fallback;
  const SteeringState kept =
      still_good(before, {"steering.bypass: auto, now never"}, guarded, notes);
  EXPECT_EQ(kept.overrides, before.overrides);
  EXPECT_FALSE(kept.is_bypass_decided);

  // A codec that its class cannot have: no key has changed, but the codec_override is not good.
  const SteeringState refused{.overrides = {{Traffic::pp_gradient, {.codec = Raw{}}}},
                              .is_bypass_decided = true};
  const SteeringState dropped = still_good(refused, {}, config_of(kLossy), notes);
  EXPECT_TRUE(dropped.overrides.empty());
  EXPECT_FALSE(dropped.is_bypass_decided);
}

TEST(Steering, ClassesThatLoseNothingAreNotAskedAbout) {
  for (const Traffic traffic : kClassesWithPolicy) {
    EXPECT_FALSE(is_encoded(traffic, config_of({}), {0, 2})) << name_of(traffic);
    EXPECT_TRUE(is_encoded(traffic, config_of(kLossy), {0, 2})) << name_of(traffic);
  }
  EXPECT_TRUE(
      is_encoded(Traffic::dp_gradient, config_of({"dp.gradient.method=power_sgd"}), {0, 2}));
  RunConfig alone = config_of(kLossy);
  alone.mesh = {.pp = 1, .dp = 1};
  for (const Traffic traffic : kClassesWithPolicy) EXPECT_FALSE(is_encoded(traffic, alone, {0, 1}));
}

TEST(Steering, OnlyTheFirstRanksEncodeSumsAndOtherClassesDoNotCare) {
  for (const char* method : {"method=codec", "method=power_sgd"}) {
    RunConfig config = config_of(kLossy);
    EXPECT_TRUE(apply_set(std::string("dp.gradient.") + method, config).empty());
    for (const int encoded : {0, 1, 2})
      for (const int pp : {0, 1}) {
        for (const Traffic traffic : kClassesWithPolicy) {
          const bool expected = traffic != Traffic::dp_gradient || pp < encoded;
          EXPECT_EQ(is_encoded(traffic, config, {pp, encoded}), expected)
              << name_of(traffic) << " at " << pp << " of " << encoded;
        }
      }
  }
}

TEST(Steering, OfMessagesBetweenStagesTheShareThatIsEncodedCounts) {
  PipelinePlan plan{.schedule = one_forward_one_backward({3, 3, 4}),
                    .stages = {},
                    .encoded = {},
                    .activation = {},
                    .gradient = {},
                    .encodes_activation = {true, true},
                    .encodes_gradient = {true, true}};
  using enum Traffic;
  for (const int pp : {0, 1, 2}) EXPECT_EQ(encoded_share(plan, pp_gradient, pp), 1);
  plan.encoded = {{true, false, false, false}, {true, true, true, false}};
  EXPECT_EQ(encoded_share(plan, pp_gradient, 0), 0);  // sends none
  EXPECT_EQ(encoded_share(plan, pp_gradient, 1), 0.25);
  EXPECT_EQ(encoded_share(plan, pp_gradient, 2), 0.75);
  EXPECT_EQ(encoded_share(plan, pp_activation, 0), 1);
  plan.encodes_activation = plan.encodes_gradient = {false, true};
  EXPECT_EQ(encoded_share(plan, pp_gradient, 1), 0);
  EXPECT_EQ(encoded_share(plan, pp_gradient, 2), 0.75);
  EXPECT_EQ(encoded_share(plan, pp_activation, 0), 0);
  EXPECT_EQ(encoded_share(plan, pp_activation, 1), 1);
}

}  // namespace
}  // namespace laconic
