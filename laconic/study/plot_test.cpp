#include "laconic/study/plot.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

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

TEST(Plot, NineCurvesAreTooMany) {
  Figure figure = small();
  figure.curves.assign(9, figure.curves[0]);
  EXPECT_THROW(script_text(figure), std::logic_error);
}

}  // namespace
}  // namespace laconic
