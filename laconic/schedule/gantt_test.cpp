#include "laconic/schedule/gantt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "laconic/base/text.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {
namespace {

Costs some_costs() {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}};
  costs.edges = {{0.5, 0.5, 0}};
  return costs;
}

// UTF-8 letters without those bytes that continue one.
std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

TEST(Gantt, DrawsBoxesAsLongAsTheyLast) {
  Costs costs = some_costs();
  costs.edges.clear();
  const Schedule schedule = lowered(one_forward_one_backward({2, 2, 2}));
  EXPECT_EQ(gantt_text(schedule, estimate(schedule, costs), {.columns = 43}),
            "rank 0 F0──F1──········B0══════····B1══════\n"
            "rank 1 ····F0──B0══════F1──B1══════········\n"
            "       |0                  |5\n");
}

// 40 columns for 3 seconds: the middle of the fourteenth is later than one second.
TEST(Gantt, AColumnShowsWhatHappensInTheMiddleOfItsTime) {
  const Schedule schedule = lowered(one_forward_one_backward({1, 1, 1}));
  const std::string text = gantt_text(schedule, estimate(schedule, some_costs()), {.columns = 47});
  EXPECT_EQ(columns_of(text.substr(7, text.find("B0") - 7)), 13u) << text;
}

TEST(Gantt, IsExactlyAsWideAsAsked) {
  for (int columns = 40; columns <= 240; ++columns)
    for (const ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble})
      for (const PipelineShape shape :
           {PipelineShape{1, 1, 1}, {4, 4, 8}, {8, 8, 64}, {12, 12, 2}}) {
        const Schedule schedule = lowered(build(kind, shape));
        const auto lines = lines_of(gantt_text(schedule, estimate(schedule, some_costs()),
                                               {.columns = columns, .messages = true}));
        const auto wires = static_cast<std::size_t>(2 * (shape.ranks - 1));
        ASSERT_EQ(lines.size(), static_cast<std::size_t>(shape.ranks) + wires + 1);
        for (std::size_t i = 0; i + 1 < lines.size(); ++i)
          EXPECT_EQ(columns_of(lines[i]), static_cast<std::size_t>(columns)) << lines[i];
        EXPECT_LE(columns_of(lines.back()), static_cast<std::size_t>(columns));
      }
}

// A column is busy when the rank is busy in the middle of its time.
TEST(Gantt, ShowsAsManyDotsAsTheRankIsIdle) {
  for (int p = 1; p <= 6; ++p)
    for (int n = 1; n <= 12; ++n) {
      const Schedule schedule = lowered(one_forward_one_backward({p, p, n}));
      const Timing timing = estimate(schedule, some_costs());
      const auto lines = lines_of(gantt_text(schedule, timing, {.columns = 207}));
      for (int rank = 0; rank < p; ++rank) {
        const double share = timing.idle[static_cast<std::size_t>(rank)] / timing.makespan;
        const auto dots = static_cast<double>(count(lines[static_cast<std::size_t>(rank)], "·"));
        EXPECT_NEAR(dots, 200 * share, 2 * n + 1) << p << " " << n << " " << rank;
      }
    }
}

// 384 columns for 192 seconds: a forward has two and a backward four.
TEST(Gantt, NamesAreWholeOrShortenedToTheirLetter) {
  const Schedule schedule = lowered(all_forward_all_backward({1, 1, 64}));
  const std::string text = gantt_text(schedule, estimate(schedule, some_costs()), {.columns = 391});
  EXPECT_NE(text.find("F8F9F─F─"), std::string::npos) << text;
  EXPECT_EQ(text.find("F1F"), text.find("F1F2")) << "never half a number";
  EXPECT_NE(text.find("B62═B63═"), std::string::npos);
}

TEST(Gantt, NamesStagesWhereARankHasSeveral) {
  const Schedule schedule = lowered(interleaved({2, 4, 2}));
  const std::string text = gantt_text(schedule, estimate(schedule, some_costs()), {.columns = 120});
  for (const char* name : {"0F0", "2F1", "3B0", "1B1"})
    EXPECT_NE(text.find(name), std::string::npos) << name << "\n" << text;
}

TEST(Gantt, HasALineForSumsThatTakeTime) {
  Costs costs = some_costs();
  const Schedule schedule = lowered(one_forward_one_backward({2, 2, 2}));
  EXPECT_EQ(count(gantt_text(schedule, estimate(schedule, costs)), "sums"), 0u);
  costs.stages = {{1, 2, 1, 1, 0}, {1, 2, 1, 1, 3}};
  const std::string text = gantt_text(schedule, estimate(schedule, costs));
  EXPECT_EQ(count(text, "sums"), 1u);
  EXPECT_NE(text.find("sums 1 "), std::string::npos);
}

TEST(Gantt, ColoursSurroundBoxesAndNothingElse) {
  const Schedule schedule = lowered(one_forward_one_backward({2, 2, 3}));
  const Timing timing = estimate(schedule, some_costs());
  const std::string text = gantt_text(schedule, timing, {.columns = 100, .colour = true});
  EXPECT_EQ(count(text, "\x1b[30;"), timing.compute.size());
  EXPECT_EQ(count(text, "\x1b[0m"), timing.compute.size());
  EXPECT_EQ(count(gantt_text(schedule, timing), "\x1b"), 0u);
}

TEST(Gantt, AStepThatTakesNoTimeIsDrawnToo) {
  Costs costs;
  costs.stages = {{0, 0, 0, 0}};
  const Schedule schedule = lowered(one_forward_one_backward({2, 2, 1}));
  const Timing timing = estimate(schedule, costs);
  EXPECT_EQ(count(gantt_text(schedule, timing), "rank"), 2u);
  EXPECT_EQ(count(gantt_svg(schedule, timing, "nothing"), "nan"), 0u);
}

TEST(Gantt, AxisMarksAreRoundAndNotTooMany) {
  for (const double end : {1e-6, 0.013, 0.7, 1.0, 9.99, 10.0, 57.0, 123456.0})
    for (int most = 2; most <= 20; ++most) {
      const std::vector<double> marks = axis_marks(end, most);
      EXPECT_LE(marks.size(), static_cast<std::size_t>(most)) << end;
      EXPECT_EQ(marks[0], 0);
      EXPECT_LE(marks.back(), end * (1 + 1e-9));
      if (marks.size() < 2) continue;
      const double digit = marks[1] / std::pow(10, std::floor(std::log10(marks[1] * (1 + 1e-9))));
      EXPECT_TRUE(std::abs(digit - 1) < 1e-6 || std::abs(digit - 2) < 1e-6 ||
                  std::abs(digit - 5) < 1e-6)
          << digit;
      EXPECT_LT(end, marks[1] * most * (1 + 1e-9)) << "the next mark would be beyond the end";
    }
  EXPECT_EQ(axis_marks(0, 5), std::vector<double>{0});
}

// Not a parser, but every element that is opened is closed, in order.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(tag.substr(1), open.back());
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Gantt, SvgHasABoxForEachActionAndALineForEachMessage) {
  for (const Schedule& schedule :
       {lowered(zero_bubble({4, 4, 6})), lowered(interleaved({2, 6, 4}))}) {
    Costs costs = some_costs();
    costs.stages[0].reduction = 1;
    const Timing timing = estimate(schedule, costs);
    const std::string svg = gantt_svg(schedule, timing, "a <b> & \"c\"");
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), 1u);
    EXPECT_EQ(count(svg, ": "), timing.compute.size() + timing.messages.size() +
                                    timing.reductions.size() + count(svg, "line: ") +
                                    count(svg, "dashed: ") + count(svg, "bar: "));
    EXPECT_EQ(count(svg, "of stage"), timing.reductions.size());
    EXPECT_EQ(count(svg, "from rank"), timing.messages.size());
  }
}

}  // namespace
}  // namespace laconic
