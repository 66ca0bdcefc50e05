#include "laconic/config/stage_choice.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {
namespace {

int encoded(const std::string& text, int pp, int automatic = 0) {
  EXPECT_TRUE(check_stage_choice(text, pp).empty()) << text;
  return encoded_ranks(parse_stage_choice(text), pp, automatic);
}

TEST(StageChoice, AllIsEveryRankAndANumberTheFirstSoMany) {
  for (int pp = 1; pp <= 8; ++pp) {
    EXPECT_EQ(encoded("all", pp), pp);
    for (int count = 0; count <= pp; ++count) EXPECT_EQ(encoded(std::to_string(count), pp), count);
  }
}

TEST(StageChoice, AFractionIsRoundedUpButNotForTheSakeOfItsOwnRounding) {
  const struct {
    const char* text;
    int pp, expected;
  } rows[] = {{"0.75", 4, 3}, {"0.75", 2, 2}, {"0.5", 1, 1},  {"0.1", 30, 3}, {"0.01", 4, 1},
              {"0.0", 4, 0},  {"1.0", 4, 4},  {"1e-1", 4, 1}, {"0.7", 10, 7}, {"0.3", 10, 3}};
  for (const auto& [text, pp, expected] : rows) EXPECT_EQ(encoded(text, pp), expected) << text;
  for (int pp = 1; pp <= 64; ++pp)
    for (int count = 0; count <= pp; ++count) {
      const std::string exact = fmt::format("{:.17f}", static_cast<double>(count) / pp);
      EXPECT_EQ(encoded(exact, pp), count) << exact << " of " << pp;
    }
}

TEST(StageChoice, AutoIsWhatTheCallerSaysWithinThePipeline) {
  EXPECT_EQ(encoded("auto", 4, 2), 2);
  EXPECT_EQ(encoded("auto", 4, 9), 4);
  EXPECT_EQ(encoded("auto", 4, -1), 0);
}

TEST(StageChoice, WhatMeansNothingIsRefusedWithItsText) {
  for (const char* text : {"", "some", "-1", "1.5", "-0.25", "nan", "inf", "3 ", "2x", "0.5,"}) {
    const Problems problems = check_stage_choice(text, 4);
    ASSERT_EQ(problems.size(), 1U) << text;
    EXPECT_NE(problems[0].what.find(fmt::format("\"{}\"", text)), std::string::npos)
        << problems[0].what;
    EXPECT_THROW(parse_stage_choice(text), ConfigError) << text;
  }
}

TEST(StageChoice, MoreRanksThanThereAreIsRefusedWithBothNumbers) {
  const Problems problems = check_stage_choice("5", 4);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "stages = 5 of 4 pipeline ranks (mesh.pp)");
  RunConfig config;
  config.mesh.pp = 4;
  config.dp_gradient.stages = "5";
  const Problems all = check(config);
  EXPECT_EQ(std::ranges::count(all, Problem{"dp.gradient.stages", problems[0].what}), 1)
      << to_text(all);
}

}  // namespace
}  // namespace laconic
