// study/statistics.hpp — means and medians, and numbers as text.
#pragma once

#include <string>
#include <vector>

namespace laconic {

// The mean of the middle two when they are even in number. Requires: not empty.
double median_of(std::vector<double> values);
double mean_of(const std::vector<double>& values);  // Requires: not empty.

// Digits after the point; a dash for what is not finite.
std::string number_text(double value, int digits);
// Digits after the point such that so many figures are shown: 0.123, 12.3 and 1235 of three.
int digits_for(double value, int figures);

}  // namespace laconic
