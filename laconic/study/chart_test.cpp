#include "laconic/study/chart.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "laconic/base/text.hpp"

namespace laconic {
namespace {

Figure falling() {
  Figure figure;
  figure.name = "falling";
  figure.title = "loss <over> seconds";
  figure.x_label = "seconds";
  figure.y_label = "loss";
  figure.kind = FigureKind::lines;
  figure.curves = {{"slow", {{0, 4, 4, 4}, {40, 0, 0, 0}}},
                   {"quick & short", {{0, 4, 4, 4}, {10, 0, 0, 0}}}};
  return figure;
}

TEST(Chart, DrawsEachCurveFromCornerToCorner) {
  EXPECT_EQ(chart_text(falling(), {.columns = 44, .rows = 9}),
            "loss <over> seconds\n"
            "4 |ox\n"
            "  | oxxxxx\n"
            "  |  o    xxxxx\n"
            "  |   oo       xxxxx\n"
            "2 |     o           xxxxxx\n"
            "  |      o                xxxxx\n"
            "  |       oo                   xxxxx\n"
            "  |         o                       xxxxx\n"
            "0 |          o                           xx\n"
            "  +----------------------------------------\n"
            "   0         10        20       30  seconds\n"
            "   x slow    o quick & short\n");
}

TEST(Chart, KeepsToItsColumnsAndRows) {
  for (const int columns : {40, 77, 160})
    for (const int rows : {4, 16, 31}) {
      const std::vector<std::string> lines =
          split(chart_text(falling(), {.columns = columns, .rows = rows}), '\n');
      ASSERT_GE(lines.size(), static_cast<std::size_t>(rows) + 4);
      for (int row = 1; row <= rows + 1; ++row)
        EXPECT_LE(lines[static_cast<std::size_t>(row)].size(), static_cast<std::size_t>(columns));
    }
}

TEST(Chart, LeavesOutWhatIsNotFinite) {
  Figure figure = falling();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  figure.curves[0].points.insert(figure.curves[0].points.begin() + 1, {20, nan, nan, nan});
  EXPECT_EQ(chart_text(figure), chart_text(falling()));
  EXPECT_EQ(chart_svg(figure), chart_svg(falling()));
}

TEST(Chart, ACurveOfOnePointIsSeen) {
  Figure figure = falling();
  figure.curves = {{"one", {{3, 2, 2, 2}}}};
  EXPECT_NE(chart_text(figure, {.columns = 60, .rows = 5}).find("x\n"), std::string::npos);
}

TEST(Chart, ColoursAreForTerminalsOnly) {
  EXPECT_EQ(chart_text(falling()).find('\033'), std::string::npos);
  EXPECT_NE(
      chart_text(falling(), {.columns = 60, .rows = 8, .colour = true}).find("\033[34mo\033[0m"),
      std::string::npos);
}

TEST(Chart, TheSvgHasAPolylineForEachCurveAndItsLegend) {
  const std::string svg = chart_svg(falling());
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  std::size_t count = 0;
  for (std::size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 4u);
  EXPECT_NE(svg.find("quick &amp; short"), std::string::npos);
  EXPECT_NE(svg.find("loss &lt;over&gt; seconds"), std::string::npos);
  // From the upper left corner to the lower right, a little room at both ends.
  EXPECT_NE(svg.find("points=\"64.0,61.3 824.0,394.7\""), std::string::npos) << svg;
}

// Both axes go from 0 to 4 and a little further: the line is the diagonal of what both have.
TEST(Chart, TheSvgOfAScatterHasPointsAndADiagonal) {
  Figure figure = falling();
  figure.kind = FigureKind::scatter;
  figure.curves = {{"told", {{0, 0}, {4, 4}}}, {"other", {{2, 1}}}};
  const std::string svg = chart_svg(figure);
  std::size_t count = 0;
  for (std::size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 3u);
  EXPECT_NE(svg.find("stroke=\"#bbbbbb\"/>"), std::string::npos) << svg;
  EXPECT_EQ(chart_svg(falling()).find("<circle"), std::string::npos);
}

}  // namespace
}  // namespace laconic
