#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/test_schedule.hpp"

namespace laconic {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_schedule(text);
  } catch (const ConfigError& error) {
    return lines(error.problems());
  }
  return "";
}

TEST(ScheduleText, ReadsWhatItWrites) {
  for_each_shape(8, 16, 4, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule built = build(kind, shape);
    EXPECT_EQ(parse_schedule(to_text(built)), built);
    EXPECT_EQ(parse_schedule(to_text(with_communication(built))), with_communication(built));
    EXPECT_EQ(parse_schedule(to_text(lowered(built))), lowered(built));
  });
}

TEST(ScheduleText, WritesStagesWhereTheyAreNotObvious) {
  EXPECT_EQ(to_text(Action{Op::send_activation, 2, 3}), ">a3");
  EXPECT_EQ(to_text(Action{Op::forward, 2, 0}, true), "2F0");
  EXPECT_EQ(to_text(Action{Op::prefetch, 2, 0}, true), "2P");
  EXPECT_EQ(to_text(Action{Op::prefetch, 2, 0}), "P");
  const Schedule astray = {{2, 2, 1}, {{{Op::forward, 1, 0}}, {{Op::forward, 0, 0}}}};
  EXPECT_EQ(to_text(astray), "rank 0:  1F0\nrank 1:  0F0\n");
  EXPECT_EQ(parse_schedule(to_text(astray)), astray);
}

TEST(ScheduleText, PassesOverBlanksCommentsAndTheOrderOfRanks) {
  const Schedule expected = {
      {2, 2, 1},
      {{{Op::forward, 0, 0}, {Op::backward, 0, 0}}, {{Op::forward, 1, 0}, {Op::backward, 1, 0}}}};
  EXPECT_EQ(parse_schedule("# two ranks\r\n\r\n  rank 1 :\tF0   B0 \r\n\t# more\n rank  0:F0 B0"),
            expected);
}

TEST(ScheduleText, StagesAndMicrobatchesFollowFromTheLines) {
  EXPECT_EQ(parse_schedule("rank 0: F2\nrank 1:\n").shape, (PipelineShape{2, 2, 3}));
  EXPECT_EQ(parse_schedule("rank 0: 0F0\nrank 1: 3F1\n").shape, (PipelineShape{2, 4, 2}));
}

// Files of earlier versions say where sums over replicas begin.
TEST(ScheduleText, PassesOverReductionsOfOlderFiles) {
  EXPECT_EQ(parse_schedule("rank 0:  F0 >a0 P <g0 B0 R\nrank 1:  <a0 F0 P B0 >g0 R\n"),
            lowered(one_forward_one_backward({2, 2, 1})));
  EXPECT_EQ(to_text(parse_schedule("rank 0: 0F0 1F0 0P 1B0 1R 0B0 0R\n")),
            "rank 0:  0F0 1F0 0P 1B0 0B0\n");
  for_each_shape(4, 6, 3, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule whole = lowered(build(kind, shape));
    std::string text = to_text(whole);
    for (std::size_t at = text.find('\n', text.find("rank")); at != std::string::npos;
         at = text.find('\n', at + 3))
      text.insert(at, " R");
    EXPECT_EQ(parse_schedule(text), whole) << text;
  });
}

TEST(ScheduleText, NamesLineAndWordOfEverythingThatIsWrong) {
  struct Case {
    std::string_view text;
    std::string refusal;
  };
  const Case cases[] = {
      {"", "schedule: no line begins with 'rank'\nschedule: no action has a microbatch\n"},
      {"rank 0: R P", "schedule: no action has a microbatch\n"},
      {"rank 0: F0\nF1\nstage 1: F0\nrank x: F0\nrank 0 1: F0",
       "line 2: 'F1' should be 'rank N:' with N below 1000, and actions behind it\n"
       "line 3: 'stage 1' should be 'rank N:' with N below 1000, and actions behind it\n"
       "line 4: 'rank x' should be 'rank N:' with N below 1000, and actions behind it\n"
       "line 5: 'rank 0 1' should be 'rank N:' with N below 1000, and actions behind it\n"},
      {"rank 0: F0 G0 f0 F F1x R0 >b0\n\nrank 0: 2P7",
       "line 1: 'G0' is no action (they are F B I W >a <a >g <g P)\n"
       "line 1: 'f0' is no action (they are F B I W >a <a >g <g P)\n"
       "line 1: 'F' is no action (of which microbatch? F0 is of the first)\n"
       "line 1: 'F1x' is no action ('x' is too much)\n"
       "line 1: 'R0' is no action (they are F B I W >a <a >g <g P)\n"
       "line 1: '>b0' is no action (they are F B I W >a <a >g <g P)\n"
       "line 3: rank 0 is there already, in line 1\n"
       "line 3: '2P7' is no action (P has no microbatch)\n"},
      {"rank 0: F100000 1000F0 F99999999999999999999",
       "line 1: 'F100000': stages are below 1000, microbatches below 100000\n"
       "line 1: '1000F0': stages are below 1000, microbatches below 100000\n"
       "line 1: 'F99999999999999999999': stages are below 1000, microbatches below 100000\n"
       "schedule: no action has a microbatch\n"},
      {"rank 1: F0\nrank 5: F0",
       "schedule: rank 0 has no line\nschedule: ranks 2 ... 4 have no line\n"},
      {"rank 0: 0F0 2F0\nrank 1: F0",
       "schedule: '0F0' in line 1 names its stage, 'F0' in line 2 does not\n"
       "schedule: 3 stages are no multiple of 2 ranks\n"},
  };
  for (const Case& c : cases) EXPECT_EQ(refusal(c.text), c.refusal) << c.text;
  EXPECT_EQ(refusal(std::string_view("rank 0: F0 \0\x1b[2J", 16)),
            "line 1: '??[2J' is no action (they are F B I W >a <a >g <g P)\n");
}

}  // namespace
}  // namespace laconic
