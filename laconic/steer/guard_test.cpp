#include "laconic/steer/guard.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sums that give these numbers.
Fidelity seen_with(double cosine, double error = 0, double residual = 0) {
  return {.messages = 1,
          .truth = 1,
          .decoded = 1,
          .product = cosine,
          .error = error * error,
          .residual = residual * residual};
}

std::map<Traffic, Measurement> looks_at(Traffic traffic, const Fidelity& fidelity,
                                        const std::string& codec = "quantise:bits=4") {
  return {{traffic, {fidelity, next_rung(parse_codec(codec))}}};
}

std::string way(const CodecOverride& codec_override) {
  return codec_override.is_bypassed ? "raw" : to_text(*codec_override.codec);
}

TEST(GuardLadder, ClimbsRungByRungUntilNothingIsLost) {
  const struct {
    const char* codec;
    std::vector<std::string> rungs;
  } rows[] = {
      {"quantise:bits=1,grid=ends",
       {"quantise:bits=2,grid=ends", "quantise:bits=3,grid=ends", "quantise:bits=4,grid=ends",
        "quantise:bits=6,grid=ends", "quantise:grid=ends", "half", "raw"}},
      {"quantise:bits=5", {"quantise:bits=6", "quantise", "half", "raw"}},
      {"quantise:bits=7", {"quantise", "half", "raw"}},
      {"quantise:bits=4,grid=powers", {"quantise:bits=6", "quantise", "half", "raw"}},
      {"sign:block=64",
       {"quantise:bits=4,block=64", "quantise:bits=6,block=64", "quantise:block=64", "half",
        "raw"}},
      {"half:kind=f16", {"raw"}},
      {"top_k:keep=0.001", {"raw"}},
      {"random_k:keep=0.1", {"raw"}},
      {"low_rank:rank=2", {"raw"}},
      {"auto_encoder:code=4", {"raw"}},
      {"raw", {"raw"}}};
  for (const auto& [codec, rungs] : rows) {
    CodecSpec now = parse_codec(codec);
    for (const std::string& rung : rungs) {
      const CodecOverride next = next_rung(now);
      EXPECT_EQ(way(next), rung) << codec;
      if (next.codec) now = *next.codec;
    }
  }
}

// Whatever can be configured has a way up: codecs that can be, and fewer than ten of them.
TEST(GuardLadder, EveryQuantiserKeepsItsOptionsAndEndsRaw) {
  int quantisers = 0;
  for (int bits = 1; bits <= 8; ++bits)
    for (const ScaleGroup group : {ScaleGroup::block, ScaleGroup::row, ScaleGroup::channel})
      for (const std::int64_t block : {0, 64, 256})
        for (const ScaleType scale : {ScaleType::f32, ScaleType::f16, ScaleType::pow2})
          for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
            for (const Grid grid : {Grid::tread, Grid::ends, Grid::artefact, Grid::powers})
              for (const bool rotate : {false, true}) {
                const Quantise start{bits, group, block, scale, rounding, grid, rotate};
                if (!check(start).empty()) continue;
                ++quantisers;
                CodecSpec now = start;
                int rungs = 0;
                for (CodecOverride next = next_rung(now); !next.is_bypassed;
                     next = next_rung(now)) {
                  ASSERT_TRUE(check(*next.codec).empty()) << to_text(*next.codec);
                  if (const auto* q = std::get_if<Quantise>(&*next.codec)) {
                    Quantise same = *q;
                    EXPECT_GT(q->bits, std::get<Quantise>(now).bits);
                    same.bits = start.bits;
                    if (start.grid == Grid::powers) same.grid = start.grid;
                    EXPECT_EQ(same, start);
                  }
                  now = *next.codec;
                  ASSERT_LT(++rungs, 10) << to_text(now);
                }
                EXPECT_EQ(now, CodecSpec(Half{}));
              }
  EXPECT_GT(quantisers, 200);
}

TEST(Guard, ReadingsAreNumbersWhateverACodecDoes) {
  EXPECT_EQ(reading_of({}), GuardReading());
  EXPECT_EQ(reading_of(seen_with(0.25, 2, 3)), (GuardReading{0.25, 2, 3}));
  const Fidelity overflow{.messages = 1,
                          .truth = 1,
                          .decoded = kInfinity,
                          .product = kInfinity,
                          .error = kInfinity,
                          .residual = std::nan("")};
  EXPECT_EQ(reading_of(overflow), (GuardReading{0, kBeyond, kBeyond}));
}

// All combinations of good and bad numbers, with the thresholds as the last good values.
TEST(Guard, EveryThresholdIsCrossedByItself) {
  const GuardSpec spec{.patience = 1};
  for (int crossed = 0; crossed < 8; ++crossed) {
    GuardState state;
    const auto alarms =
        judge(spec, state, 20,
              looks_at(Traffic::pp_gradient,
                       seen_with((crossed & 1) != 0 ? 0.4999 : 0.5, (crossed & 2) != 0 ? 1.001 : 1,
                                 (crossed & 4) != 0 ? 10.01 : 10)));
    ASSERT_EQ(alarms.size(), crossed != 0 ? 1U : 0U) << crossed;
    if (crossed == 0) continue;
    std::string names;
    for (const Crossing& c : alarms[0].crossed) names += c.threshold + " ";
    EXPECT_EQ(names, std::string((crossed & 1) != 0 ? "steering.min_cosine " : "") +
                         ((crossed & 2) != 0 ? "steering.max_error " : "") +
                         ((crossed & 4) != 0 ? "steering.max_residual " : ""));
  }
}

// Every sequence of eight good and bad measurements, every patience from 1 to 4, against the rule
// in words: an alarm at each measurement whose run of bad ones, since the last action, is a
// multiple.
TEST(Guard, PatienceCountsBadLooksInARow) {
  for (const bool acts : {false, true})
    for (std::int64_t patience = 1; patience <= 4; ++patience)
      for (int bits = 0; bits < 256; ++bits) {
        const GuardSpec spec{.acts = acts, .patience = patience};
        GuardState state;
        std::int64_t run = 0;
        for (int measurement = 0; measurement < 8; ++measurement) {
          const bool is_bad = (bits >> measurement & 1) != 0;
          run = is_bad ? run + 1 : 0;
          const bool expected = run > 0 && run % patience == 0;
          const auto alarms = judge(spec, state, 20 * (measurement + 1),
                                    looks_at(Traffic::dp_gradient, seen_with(is_bad ? 0.1 : 0.9)));
          ASSERT_EQ(alarms.size(), expected ? 1U : 0U) << bits << ", measurement " << measurement;
          if (expected) {
            EXPECT_EQ(alarms[0].in_a_row, run);
            EXPECT_EQ(alarms[0].step, 20 * (measurement + 1));
            EXPECT_EQ(alarms[0].is_followed, acts);
            EXPECT_EQ(way(alarms[0].proposed), "quantise:bits=6");
          }
          if (expected && acts) run = 0;
        }
      }
}

TEST(Guard, DriftIsTheChangeAgainstTheFirstThreeLooks) {
  GuardState state;
  const double cosines[] = {0.9, 0.8, 0.7, 0.6, 0.95};
  const double drifts[] = {0, -0.05, -0.1, -0.2, 0.15};
  for (int measurement = 0; measurement < 5; ++measurement) {
    judge({}, state, measurement,
          looks_at(Traffic::pp_activation, seen_with(cosines[measurement], 0.5)));
    const ClassHistory& watch = state.at(Traffic::pp_activation);
    EXPECT_NEAR(watch.drift().cosine, drifts[measurement], 1e-12);
    EXPECT_NEAR(watch.drift().relative_error, 0, 1e-12);
    EXPECT_EQ(watch.last.cosine, cosines[measurement]);
    EXPECT_EQ(watch.measurements, measurement + 1);
    EXPECT_EQ(watch.step, measurement);
  }
  EXPECT_EQ(state.at(Traffic::pp_activation).worst.cosine, 0.6);
}

TEST(Guard, WhatIsTreatedInAnotherWayBeginsAnew) {
  GuardState state;
  const GuardSpec spec{.acts = true, .patience = 1};
  judge(spec, state, 20, looks_at(Traffic::pp_activation, seen_with(0.1)));
  judge(spec, state, 40, looks_at(Traffic::pp_activation, seen_with(0.8), "quantise:bits=6"));
  EXPECT_EQ(state.at(Traffic::pp_activation).drift().cosine, 0);
  EXPECT_EQ(state.at(Traffic::pp_activation).first.cosine, 0.8);
  EXPECT_EQ(state.at(Traffic::pp_activation).worst.cosine, 0.1);
}

TEST(Guard, ClassesAreJudgedApartAndSilentOnesNotAtAll) {
  GuardState state;
  std::map<Traffic, Measurement> measurements = looks_at(Traffic::pp_activation, seen_with(0.9));
  measurements[Traffic::pp_gradient] = {seen_with(0.1), next_rung(parse_codec("sign"))};
  measurements[Traffic::dp_gradient] = {};
  const auto alarms = judge({.patience = 1}, state, 1, measurements);
  ASSERT_EQ(alarms.size(), 1U);
  EXPECT_EQ(alarms[0].traffic, Traffic::pp_gradient);
  EXPECT_EQ(state.size(), 2U);
}

TEST(Guard, AnAlarmSaysWhatCrossedWhatAndWhatFollows) {
  GuardState state;
  GuardSpec spec{.acts = true, .patience = 2};
  judge(spec, state, 20, looks_at(Traffic::pp_gradient, seen_with(0.2)));
  auto alarms = judge(spec, state, 40, looks_at(Traffic::pp_gradient, seen_with(0.31)));
  ASSERT_EQ(alarms.size(), 1U);
  EXPECT_EQ(
      to_text(alarms[0]),
      "guard: step 40, pp.gradient: cosine 0.31 is below steering.min_cosine = 0.5 (2 measurements "
      "in a row); from step 41 on by quantise:bits=6");
  spec = {.patience = 1};
  alarms = judge(spec, state, 60, looks_at(Traffic::dp_gradient, seen_with(0.9, 2, 12), "half"));
  EXPECT_EQ(
      to_text(alarms[0]),
      "guard: step 60, dp.gradient: relative error 2 is above steering.max_error = 1, "
      "residual ratio 12 is above steering.max_residual = 10 (1 measurement); steering.guard = "
      "\"fallback\" would send it raw");
}

TEST(Guard, TheStateSurvivesACheckpoint) {
  GuardState state;
  for (int measurement = 0; measurement < 5; ++measurement)
    for (const Traffic traffic : {Traffic::pp_activation, Traffic::dp_gradient}) {
      judge({.patience = 3}, state, measurement,
            looks_at(traffic, seen_with(1.0 / (measurement + 1.7), measurement)));
      EXPECT_EQ(guard_state_from(to_json(state)), state);
    }
  EXPECT_EQ(guard_state_from(to_json(GuardState())), GuardState());
  for (const char* broken : {"", "[1]", "{\"pp.activation\": 3}", "{\"nobody\": {}}",
                             "{\"pp.gradient\": {\"looks\": 1}}"})
    EXPECT_THROW(guard_state_from(broken), ConfigError) << broken;
}

TEST(Guard, TheSpecIsWhatTheConfigurationSays) {
  const SteeringSection steering{.guard = GuardMode::fallback,
                                 .min_cosine = 0.25,
                                 .max_error = 0.5,
                                 .max_residual = 3,
                                 .patience = 5};
  const GuardSpec spec = guard_spec_of(steering);
  EXPECT_TRUE(spec.acts);
  EXPECT_EQ(spec.min_cosine, 0.25);
  EXPECT_EQ(spec.max_error, 0.5);
  EXPECT_EQ(spec.max_residual, 3);
  EXPECT_EQ(spec.patience, 5);
  EXPECT_FALSE(guard_spec_of({.guard = GuardMode::watch}).acts);
}

}  // namespace
}  // namespace laconic
