// study/report_figure.hpp — figures that have the rates of links on their x axis.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/study/plot.hpp"
#include "laconic/study/report_case.hpp"

namespace laconic {

// Where rates stand on an axis, in Mbit/s; "unshaped" ten times as far as the fastest.
std::vector<Tick> rate_ticks(const std::vector<std::string>& rates);

// A curve for each of these methods; cases without a number are left out, and so are methods
// without any. Who asks for it gives it its name, its title and the label of its y axis.
Figure figure_over_rates(const std::vector<Case>& cases, const std::vector<std::string>& methods,
                         const std::function<Spread(const Case&)>& value);

}  // namespace laconic
