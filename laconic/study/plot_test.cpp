#include "laconic/study/plot.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "laconic/base/text.hpp"
#include "laconic/study/heat_map.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

Figure small() {
  Figure figure;
  figure.name = "small";
  figure.title = "It's small";
  figure.x_label = "link, Mbit/s";
  figure.y_label = "samples/s";
  figure.log_x = true;
  figure.ticks = {{10, "10mbit"}, {100, "100mbit"}};
  figure.curves = {{"fp32", {{10, 1, 0.9, 1.1}, {100, 8, 8, 8}}}, {"ac_sgd", {{10, 4, 3.5, 4}}}};
  return figure;
}

TEST(Plot, TheScriptDrawsTwice) {
  EXPECT_EQ(
      script_text(small()),
      "set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'\n"
      "set output 'small.svg'\n"
      "set title 'It''s small'\n"
      "set xlabel 'link, Mbit/s'\n"
      "set ylabel 'samples/s'\n"
      "set grid\n"
      "set key outside right top Left reverse samplen 3\n"
      "set logscale x 10\n"
      "set xtics ('10mbit' 10, '100mbit' 100)\n"
      "set yrange [0:*]\n"
      "set xrange [6.66667:150]\n"
      "plot 'small.dat' index 0 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 4 linecolor "
      "rgb "
      "'#D55E00' title 'fp32', \\\n"
      "  'small.dat' index 1 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 5 linecolor rgb "
      "'#0072B2' title 'ac_sgd'\n"
      "set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'\n"
      "set output 'small.png'\n"
      "replot\n");
}

TEST(Plot, CurvesAreBlocksOfTheData) {
  Figure figure = small();
  figure.curves[1].points.push_back({100, std::numeric_limits<double>::quiet_NaN(), 0, 0});
  EXPECT_EQ(data_text(figure),
            "# It's small\n# link, Mbit/s; samples/s; least; most\n"
            "# fp32\n10 1 0.9 1.1\n100 8 8 8\n\n\n# ac_sgd\n10 4 3.5 4\n");
}

TEST(Plot, WithoutPointsThereIsNothingToDraw) {
  Figure figure = small();
  EXPECT_TRUE(has_data(figure));
  for (Curve& curve : figure.curves) curve.points.clear();
  EXPECT_FALSE(has_data(figure));
  EXPECT_THROW(script_text(figure), std::logic_error);
}

using testing::contains;

Figure small_heat() {
  Figure figure;
  figure.name = "places";
  figure.title = "places";
  figure.y_label = "loss";
  figure.kind = FigureKind::heat;
  figure.ticks = {{0, "first"}, {1, "last"}};
  figure.curves = {{"A1", {{0, 3}, {1, 1}}}, {"<T3>", {{1, 2}}}};
  return figure;
}

TEST(HeatMap, HasAFieldForEachRowAndColumnThatWasMeasured) {
  Figure figure = small_heat();
  EXPECT_EQ(data_text(figure), "# places\n# column; row; loss\n0 0 3\n1 0 1\n1 1 2\n");
  const std::string script = script_text(figure);
  EXPECT_TRUE(contains(script, "set xtics ('first' 0, 'last' 1) rotate by -35\n")) << script;
  EXPECT_TRUE(contains(script, "set ytics ('A1' 0, '<T3>' 1)\n")) << script;
  EXPECT_TRUE(contains(script, "set yrange [1.5:-0.5]\n")) << script;
  EXPECT_TRUE(contains(script, "plot 'places.dat' using 1:2:(0.5):(0.5):3")) << script;
  EXPECT_FALSE(contains(script, "index")) << script;
  figure.curves.assign(9, figure.curves[0]);  // rows are not told apart by colours
  EXPECT_NO_THROW(script_text(figure));
}

TEST(HeatMap, IsDrawnWithoutGnuplotWithItsNumbers) {
  Figure figure = small_heat();
  const std::string svg = heat_svg(figure);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  std::size_t fields = 0;
  for (std::size_t at = 0; (at = svg.find("fill=\"#", at)) != std::string::npos; ++at) ++fields;
  EXPECT_EQ(fields, 3u);
  EXPECT_TRUE(contains(svg, "&lt;T3&gt;")) << svg;
  // The least is nearly white, the most is blue; a row is 26 pixels high, a column 84 wide.
  EXPECT_TRUE(
      contains(svg, "<rect x=\"254\" y=\"60\" width=\"84\" height=\"26\" fill=\"#f7fbff\"/>"))
      << svg;
  EXPECT_TRUE(
      contains(svg, "<rect x=\"170\" y=\"60\" width=\"84\" height=\"26\" fill=\"#6baed6\"/>"))
      << svg;
  EXPECT_TRUE(contains(svg, "<rect x=\"254\" y=\"86\"")) << svg;
  figure.curves[0].points[0].y = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(contains(heat_svg(figure), "nan"));
  figure.kind = FigureKind::lines;
  EXPECT_THROW(heat_svg(figure), std::logic_error);
}

TEST(Scatter, HasPointsAndTheLineOnWhichBothAreEqual) {
  Figure figure = small();
  figure.kind = FigureKind::scatter;
  const std::string script = script_text(figure);
  EXPECT_TRUE(contains(script,
                       "plot x linecolor rgb '#BBBBBB' title 'equal', \\\n"
                       "  'small.dat' index 0 using 1:2 with points pointtype 4"))
      << script;
}

TEST(Plot, NineCurvesAreTooMany) {
  Figure figure = small();
  figure.curves.assign(9, figure.curves[0]);
  EXPECT_THROW(script_text(figure), std::logic_error);
}

}  // namespace
}  // namespace laconic
