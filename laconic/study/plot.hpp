// study/plot.hpp — a figure as a value, and the gnuplot script and data that draw it.
//
// The script reads NAME.dat, curve after curve by `index`, and writes NAME.svg
// and NAME.png, all beside itself. Pure: nothing is drawn here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace laconic {

inline constexpr std::size_t kMostCurves = 8;  // more than that nobody can tell apart

struct Point {
  double x = 0;
  double y = 0;
  double least = 0;  // ends of the error bar
  double most = 0;
  bool operator==(const Point&) const = default;
};

struct Curve {
  std::string name;
  std::vector<Point> points;
  bool operator==(const Curve&) const = default;
};

struct Tick {
  double x = 0;
  std::string label;
  bool operator==(const Tick&) const = default;
};

enum class FigureKind : std::uint8_t {
  ranges,   // points joined by lines, with error bars
  lines,    // lines alone
  stacked,  // bars: a tick is a bar, curves are what it is made of
  scatter,  // points alone, and the line on which both axes are equal
  heat,     // a field for each curve (a row) and tick (x counts them from 0), coloured by y
};

struct Figure {
  std::string name;  // of its files
  std::string title, x_label, y_label;
  FigureKind kind = FigureKind::ranges;
  bool log_x = false;
  bool log_y = false;
  std::vector<Tick> ticks;    // of the x axis; empty: gnuplot's own
  std::vector<Curve> curves;  // at most kMostCurves; rows of a heat map may be more
};

// Returns the colour of a curve by its place in the figure: "#D55E00". Requires: index <
// kMostCurves.
const char* colour_of(std::size_t index);

bool has_data(const Figure& figure);
std::string data_text(const Figure& figure);
// Requires: has_data(figure), at most kMostCurves but for heat maps.
std::string script_text(const Figure& figure);

}  // namespace laconic
