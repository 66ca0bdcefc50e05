#include "laconic/steer/bypass.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace laconic {
namespace {

constexpr double kMbit = 1e6 / 8;

ClassCosts costs() {
  return {.messages = 8,
          .raw_bytes = 8e6,
          .wire_bytes = 1e6,
          .codec_seconds = 0.040,
          .raw_seconds = 0.004,
          .exposed_seconds = 0.1,
          .active_seconds = 0.2};
}

bool is_bypassed(Traffic traffic, double rate, const ClassCosts& c = costs(), double s = 0) {
  return answer({traffic, {c}, rate, s}).is_bypassed;
}

TEST(Bypass, ASlowLinkNeverAndOneBeyondAllMeasureAlways) {
  for (const Traffic traffic :
       {Traffic::pp_activation, Traffic::dp_gradient, Traffic::tp_activation, Traffic::tp_weight}) {
    EXPECT_FALSE(is_bypassed(traffic, 10 * kMbit)) << name_of(traffic);
    EXPECT_FALSE(is_bypassed(traffic, 100 * kMbit)) << name_of(traffic);
    EXPECT_TRUE(is_bypassed(traffic, 1e7 * kMbit)) << name_of(traffic);
  }
}

// 8 MB raw, 1 MB encoded, 36 ms more work: 7 MB in 36 ms are 1.56 Gbit/s, and 0.95 needs more.
TEST(Bypass, TheAnswerChangesWhereTimesAreEqual) {
  for (const Traffic traffic : {Traffic::pp_gradient, Traffic::embedding_tied}) {
    EXPECT_FALSE(is_bypassed(traffic, 1550 * kMbit)) << name_of(traffic);
    EXPECT_TRUE(is_bypassed(traffic, 1800 * kMbit)) << name_of(traffic);
  }
}

TEST(Bypass, OnceItIsWorthItAFasterLinkMakesItNoLess) {
  for (const Traffic traffic : {Traffic::pp_activation, Traffic::dp_gradient})
    for (const double codec : {0.0, 0.001, 0.04, 1.0})
      for (const double raw : {0.0, 0.001, 0.02})
        for (const double wire : {1e5, 1e6, 7e6, 8e6})
          for (const double exposed : {0.0, 0.001, 0.01, 0.1, 10.0})
            for (const double s : {0.0, 0.25, 1.0}) {
              ClassCosts c = costs();
              c.codec_seconds = codec;
              c.raw_seconds = std::min(raw, codec);
              c.wire_bytes = wire;
              c.exposed_seconds = exposed;
              bool was = false;
              for (double rate = 1e3; rate < 1e13; rate *= 1.5) {
                const bool is = is_bypassed(traffic, rate, c, s);
                EXPECT_TRUE(is || !was) << rate << ", codec " << codec << ", exposed " << exposed;
                was = is;
              }
            }
}

TEST(Bypass, EncodingThatIsAsCheapAsCopyingStays) {
  ClassCosts c = costs();
  c.codec_seconds = c.raw_seconds;
  for (const Traffic traffic : {Traffic::pp_activation, Traffic::dp_gradient})
    for (double rate = 1e3; rate < 1e13; rate *= 2)
      EXPECT_FALSE(is_bypassed(traffic, rate, c)) << rate;
}

// What computation hides anyway is no reason to encode in its thread; beside it, encoding that
// nobody waits for stays, unless it takes a core that computation wants.
TEST(Bypass, WhatIsHiddenDoesNotCount) {
  ClassCosts c = costs();
  c.exposed_seconds = 0;
  const ClassCosts hidden{.messages = 8,
                          .raw_bytes = 2e6,
                          .wire_bytes = 1e6,
                          .codec_seconds = 0.04,
                          .raw_seconds = 0.004};
  const BypassAnswer found = answer({Traffic::pp_activation, {hidden}, 1550 * kMbit, 0});
  EXPECT_TRUE(found.is_bypassed);
  EXPECT_NEAR(found.encoded_seconds, 0.04, 1e-12);
  EXPECT_NEAR(found.raw_seconds, 0.004 + 1e6 / (1550 * kMbit), 1e-12);  // the second megabyte
  EXPECT_FALSE(is_bypassed(Traffic::dp_gradient, 1e7 * kMbit, c, 0));
  EXPECT_TRUE(is_bypassed(Traffic::dp_gradient, 1e7 * kMbit, c, 0.5));
}

// One rank sends and packs, another unpacks and waits.
TEST(Bypass, TheSlowestRankCountsOfEachThing) {
  ClassCosts idle, packs = costs(), waits;
  waits.exposed_seconds = packs.exposed_seconds;
  waits.active_seconds = packs.active_seconds;
  packs.exposed_seconds = packs.active_seconds = 0;
  for (const double rate : {0.0, 10 * kMbit, 1000 * kMbit, 1e7 * kMbit})
    EXPECT_EQ(answer({Traffic::pp_activation, {idle, waits, packs}, rate, 0}).line,
              answer({Traffic::pp_activation, {costs()}, rate, 0}).line);
  ClassCosts less = costs();
  less.raw_bytes = less.wire_bytes = 5e5;
  less.codec_seconds = less.exposed_seconds = 0.01;
  for (const auto& ranks : {std::vector{less, costs()}, {costs(), less}})
    EXPECT_EQ(answer({Traffic::pp_activation, ranks, 1000 * kMbit, 0}).line,
              answer({Traffic::pp_activation, {costs()}, 1000 * kMbit, 0}).line);
  const BypassAnswer found = answer({Traffic::pp_activation, {idle, packs, waits}, 1e7 * kMbit, 0});
  EXPECT_TRUE(found.is_bypassed);
  EXPECT_NEAR(found.encoded_seconds, 0.04, 1e-3);
  EXPECT_NEAR(found.raw_seconds, 0.004, 1e-3);
}

// The class was under way for 0.2 s and moved 1 MB: the link has at least 40 Mbit/s. What is worth
// it at that rate is worth it at the true one.
TEST(Bypass, WithoutAPreflightTheRateIsAtLeastWhatWasSeen) {
  const LinkRate rate = rate_for(0, costs());
  EXPECT_TRUE(rate.is_at_least);
  EXPECT_DOUBLE_EQ(rate.bytes_per_second, 40 * kMbit);
  EXPECT_FALSE(rate_for(5, costs()).is_at_least);
  EXPECT_FALSE(is_bypassed(Traffic::dp_gradient, 0));
  ClassCosts dear = costs();
  dear.codec_seconds = 10;
  dear.exposed_seconds = 10;
  EXPECT_TRUE(is_bypassed(Traffic::dp_gradient, 0, dear));
}

TEST(Bypass, WhatCannotBeDecidedStaysAndSaysWhy) {
  ClassCosts c = costs();
  c.active_seconds = 0;
  const BypassAnswer unknown = answer({Traffic::dp_gradient, {c}, 0, 0});
  EXPECT_FALSE(unknown.is_bypassed);
  EXPECT_EQ(unknown.line, "bypass: dp.gradient stays encoded: nobody knows how fast the links are");
  EXPECT_FALSE(answer({Traffic::dp_gradient, {}, 1, 0}).is_bypassed);
  EXPECT_EQ(answer({Traffic::dp_gradient, {ClassCosts()}, 1, 0}).line,
            "bypass: dp.gradient stays encoded: nothing of it was sent in the steps that were "
            "measured");
}

TEST(Bypass, SaysWhatDecidesAndWhatItIsMadeOf) {
  EXPECT_EQ(answer({Traffic::dp_gradient, {costs()}, 1250e6, 0}).line,
            "bypass: dp.gradient travels raw: a step loses 40.8 ms to it encoded, 10.4 ms raw "
            "(encoded: 40 ms of work and 0.8 ms of sending, raw: 4 ms and 6.4 ms, at 10 Gbit/s; "
            "computation hides 0 ms of either)");
  EXPECT_EQ(answer({Traffic::pp_activation, {costs()}, 12.5e6, 0}).line,
            "bypass: pp.activation stays encoded: a step loses 120 ms to it encoded, 644 ms raw "
            "(encoded: 40 ms of work and 80 ms of sending, raw: 4 ms and 640 ms, at 100 Mbit/s; "
            "computation hides 0 ms of either)");
}

// Sending raw takes longer by far more than encoding costs, and is hidden all the same: the line
// must not read as if the decision were wrong. Nobody writes 26.9 s as 2.69e+04 ms.
TEST(Bypass, ADecisionForWhatComputationHidesExplainsItself) {
  ClassCosts c = costs();
  c.codec_seconds = 0.110;
  c.raw_seconds = 0.004;
  c.wire_bytes = 1e6;
  c.raw_bytes = 2.89e6;
  c.exposed_seconds = 0.05;
  const BypassAnswer hidden = answer({Traffic::dp_gradient, {c}, 1e7, 1});
  EXPECT_TRUE(hidden.is_bypassed);
  EXPECT_EQ(hidden.line,
            "bypass: dp.gradient travels raw: a step loses 160 ms to it encoded, 137 ms raw "
            "(encoded: 110 ms of work and 100 ms of sending, raw: 4 ms and 289 ms, at 80 Mbit/s; "
            "computation hides 160 ms of either; no core is free for the work, which costs "
            "computation 110 ms encoded, 4 ms raw)");
  const std::string slow = answer({Traffic::dp_gradient, {costs()}, 300, 0}).line;
  EXPECT_EQ(slow.find("e+"), std::string::npos) << slow;
  EXPECT_NE(slow.find("55 m 33 s of sending"), std::string::npos) << slow;
}

}  // namespace
}  // namespace laconic
