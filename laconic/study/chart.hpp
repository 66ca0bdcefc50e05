// study/chart.hpp — a figure of lines, drawn here: as text for a terminal, as SVG for a page.
//
// Pure, and without gnuplot: the quickstart draws with what the build needs anyway. Points that are
// not finite are left out. Only FigureKind::lines with linear axes, and as SVG scatters: points,
// and the line on which both axes are equal. Heat maps are study/heat_map.hpp's.
#pragma once

#include <string>

#include "laconic/study/plot.hpp"

namespace laconic {

struct ChartOptions {
  int columns = 100;    // of the terminal, labels included; at least 40
  int rows = 16;        // of the drawing alone; at least 4
  bool colour = false;  // ANSI, by curve
};

// Each curve has a letter, which the legend names; where curves meet, the later one is seen.
// Requires: has_data(figure), at most kMostCurves.
std::string chart_text(const Figure& figure, const ChartOptions& options = {});

// A complete SVG document. Curves differ in colour and in dashes. Requires: as above.
std::string chart_svg(const Figure& figure);

}  // namespace laconic
