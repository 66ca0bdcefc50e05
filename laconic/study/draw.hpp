// study/draw.hpp — figures as files, drawn by gnuplot where there is one.
#pragma once

#include <string>
#include <vector>

#include "laconic/study/plot.hpp"

namespace laconic {

// Data, script and drawings of those that have data, in FOLDER/figures. Returns why there are no
// drawings; empty: there are. Throws SystemError.
std::string draw_figures(const std::string& folder, const std::vector<Figure>& figures);

}  // namespace laconic
