#include "laconic/study/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// Okabe and Ito's colours, which the colour-blind tell apart; black last.
constexpr std::array<const char*, kMostCurves> kColours = {
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000"};

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'') result += '\'';
    result += letter;
  }
  return result + "'";
}

std::string ticks_text(const Figure& figure) {
  if (figure.ticks.empty()) return "";
  std::string list;
  for (const Tick& tick : figure.ticks) {
    list += fmt::format("{}{} {:g}", list.empty() ? "" : ", ", quoted(tick.label), tick.x);
  }
  const bool is_long = figure.kind == FigureKind::stacked || figure.kind == FigureKind::heat ||
                       figure.ticks.size() > 6;
  return fmt::format("set xtics ({}){}\n", list, is_long ? " rotate by -35" : "");
}

// Rows from above, as in a table.
std::string heat_text(const Figure& figure) {
  std::string rows;
  for (std::size_t i = 0; i < figure.curves.size(); ++i)
    rows += fmt::format("{}{} {}", rows.empty() ? "" : ", ", quoted(figure.curves[i].name), i);
  return fmt::format(
      "set ytics ({})\nset xrange [-0.5:{}.5]\nset yrange [{}.5:-0.5]\nunset grid\nunset key\n"
      "set palette defined (0 '#F7FBFF', 1 '#6BAED6')\nset cblabel {}\nset ylabel ''\n",
      rows, figure.ticks.size() - 1, figure.curves.size() - 1, quoted(figure.y_label));
}

std::string kind_text(const Figure& figure) {
  if (figure.kind == FigureKind::heat) return heat_text(figure);
  if (figure.kind != FigureKind::stacked) return "";
  return "set style data histograms\nset style histogram rowstacked\nset style fill solid 0.9\n"
         "set boxwidth 0.75\n";
}

// Speeds begin at 0, or small differences would look large; ticks keep off the frame.
std::string ranges_text(const Figure& figure) {
  if (figure.kind == FigureKind::heat) return "";
  std::string text;
  if (figure.kind != FigureKind::lines && !figure.log_y) text += "set yrange [0:*]\n";
  if (figure.log_x && !figure.ticks.empty()) {
    const auto [least, most] =
        std::minmax_element(figure.ticks.begin(), figure.ticks.end(),
                            [](const Tick& a, const Tick& b) { return a.x < b.x; });
    text += fmt::format("set xrange [{:g}:{:g}]\n", least->x / 1.5, most->x * 1.5);
  }
  return text;
}

std::string plot_of_curve(const Figure& figure, std::size_t index) {
  const char* colour = kColours.at(index);
  const std::string source = fmt::format("'{}.dat' index {}", figure.name, index);
  const std::string title = quoted(figure.curves[index].name);
  switch (figure.kind) {
    case FigureKind::ranges:
      return fmt::format(
          "{} using 1:2:3:4 with yerrorlines linewidth 2 pointtype {} linecolor rgb '{}' title {}",
          source, index + 4, colour, title);
    case FigureKind::lines:
      // Dashes, so that a curve that lies on another is seen.
      return fmt::format(
          "{} using 1:2 with lines linewidth 2 dashtype {} linecolor rgb '{}' title {}", source,
          index + 1, colour, title);
    case FigureKind::scatter:
      return fmt::format("{} using 1:2 with points pointtype {} linecolor rgb '{}' title {}",
                         source, index + 4, colour, title);
    case FigureKind::heat: break;  // all rows at once
    case FigureKind::stacked:
      return fmt::format("{} using 2 linecolor rgb '{}' title {}", source, colour, title);
  }
  return "";
}

}  // namespace

const char* colour_of(std::size_t index) {
  return kColours.at(index);
}

namespace {

std::string plot_of_heat(const Figure& figure) {
  return fmt::format(
      "'{0}.dat' using 1:2:(0.5):(0.5):3 with boxxyerrorbars fillstyle solid linecolor palette, "
      "\\\n"
      "  '{0}.dat' using 1:2:(sprintf('%.3g', $3)) with labels",
      figure.name);
}

std::string plots_of(const Figure& figure) {
  if (figure.kind == FigureKind::heat) return plot_of_heat(figure);
  std::string plots =
      figure.kind == FigureKind::scatter ? "x linecolor rgb '#BBBBBB' title 'equal'" : "";
  for (std::size_t i = 0; i < figure.curves.size(); ++i)
    plots += (plots.empty() ? "" : ", \\\n  ") + plot_of_curve(figure, i);
  return plots;
}

// A line for each field: column, row, what it shows.
std::string heat_data(const Figure& figure) {
  std::string text = fmt::format("# {}\n# column; row; {}\n", figure.title, figure.y_label);
  for (std::size_t i = 0; i < figure.curves.size(); ++i)
    for (const Point& p : figure.curves[i].points)
      if (std::isfinite(p.y)) text += fmt::format("{:g} {} {:g}\n", p.x, i, p.y);
  return text;
}

}  // namespace

bool has_data(const Figure& figure) {
  return std::any_of(figure.curves.begin(), figure.curves.end(),
                     [](const Curve& curve) { return !curve.points.empty(); });
}

std::string data_text(const Figure& figure) {
  if (figure.kind == FigureKind::heat) return heat_data(figure);
  std::string text =
      fmt::format("# {}\n# {}; {}; least; most\n", figure.title, figure.x_label, figure.y_label);
  for (std::size_t i = 0; i < figure.curves.size(); ++i) {
    text += fmt::format("{}# {}\n", i == 0 ? "" : "\n\n", figure.curves[i].name);
    for (const Point& p : figure.curves[i].points) {
      if (!std::isfinite(p.x) || !std::isfinite(p.y)) continue;
      text += fmt::format("{:g} {:g} {:g} {:g}\n", p.x, p.y, p.least, p.most);
    }
  }
  return text;
}

std::string script_text(const Figure& figure) {
  LACONIC_ASSERT(
      has_data(figure) && (figure.kind == FigureKind::heat || figure.curves.size() <= kMostCurves),
      fmt::format("{}: {} curves", figure.name, figure.curves.size()));
  return fmt::format(
      "set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'\n"
      "set output '{0}.svg'\n"
      "set title {1}\nset xlabel {2}\nset ylabel {3}\n"
      "set grid\nset key outside right top Left reverse samplen 3\n{4}{5}{6}{7}"
      "plot {8}\n"
      "set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'\n"
      "set output '{0}.png'\nreplot\n",
      figure.name, quoted(figure.title), quoted(figure.x_label), quoted(figure.y_label),
      figure.log_x ? "set logscale x 10\n" : "", figure.log_y ? "set logscale y 10\n" : "",
      kind_text(figure), ticks_text(figure) + ranges_text(figure), plots_of(figure));
}

}  // namespace laconic
