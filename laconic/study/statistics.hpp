// study/statistics.hpp — what rounds have in common: the median, and how far they lie apart.
//
// What one could get wrong: a round's figure is the median over its steps; a
// Spread is over rounds, so its least and most say how well a figure can be had
// again, not how much steps differ. A Spread without rounds is no number at all:
// text() gives a dash for it, and everything made from it has no rounds either.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace laconic {

// The mean of the middle two when they are even in number. Requires: not empty.
double median_of(std::vector<double> values);
double mean_of(const std::vector<double>& values);  // Requires: not empty.

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  std::size_t rounds = 0;
  // The least and the most step of a single round, which has no other spread. Only shown: numbers
  // made from two spreads have none. Equal: not known.
  double least_step = 0;
  double most_step = 0;
  bool operator==(const Spread&) const = default;
};
// Leaves out values that are not finite.
Spread spread_of(const std::vector<double>& values);
bool is_known(const Spread& spread);

// `scale` may be negative.
Spread scaled(const Spread& spread, double scale);
// numerator / denominator: of the medians; least and most are the worst and the best that the
// rounds of both could have met. Unknown where a denominator is not above 0.
Spread ratio_of(const Spread& numerator, const Spread& denominator);
// Whether some round of one is on the other's side.
bool overlap(const Spread& a, const Spread& b);

// Digits after the point; a dash for what is not finite.
std::string number_text(double value, int digits);
// "12.3 (11.9–12.8, n 3)", "12.3 (steps 12.1–12.9, n 1)", "12.3 (n 1)"; a dash when unknown.
std::string text(const Spread& spread, int digits, const std::string& unit = "");
// Digits such that three or more figures are shown: 0.123, 12.3, 1235.
int digits_for(double value);
std::string text(const Spread& spread);

}  // namespace laconic
