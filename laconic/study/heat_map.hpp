// study/heat_map.hpp — a figure of coloured fields, drawn here as SVG, without gnuplot.
//
// Pure. Every field says its number, so that nobody has to tell shades apart; what was not measured
// stays empty.
#pragma once

#include <string>

#include "laconic/study/plot.hpp"

namespace laconic {

// A complete SVG document. Requires: has_data(figure), figure.kind is heat.
std::string heat_svg(const Figure& figure);

}  // namespace laconic
