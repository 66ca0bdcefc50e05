#include "laconic/study/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr const char* kDash = "–";

}  // namespace

double median_of(std::vector<double> values) {
  LACONIC_ASSERT(!values.empty(), "no values");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double mean_of(const std::vector<double>& values) {
  LACONIC_ASSERT(!values.empty(), "no values");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Spread spread_of(const std::vector<double>& values) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  if (finite.empty()) return {};
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
  return {median_of(finite), *least, *most, finite.size()};
}

bool is_known(const Spread& spread) {
  return spread.rounds > 0;
}

Spread scaled(const Spread& spread, double scale) {
  const double a = spread.least * scale;
  const double b = spread.most * scale;
  const double c = spread.least_step * scale;
  const double d = spread.most_step * scale;
  return {spread.median * scale, std::min(a, b), std::max(a, b),
          spread.rounds,         std::min(c, d), std::max(c, d)};
}

Spread ratio_of(const Spread& numerator, const Spread& denominator) {
  if (!is_known(numerator) || !is_known(denominator) || denominator.least <= 0) return {};
  return {numerator.median / denominator.median, numerator.least / denominator.most,
          numerator.most / denominator.least, std::min(numerator.rounds, denominator.rounds)};
}

bool overlap(const Spread& a, const Spread& b) {
  return is_known(a) && is_known(b) && a.least <= b.most && b.least <= a.most;
}

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : kDash;
}

std::string text(const Spread& spread, int digits, const std::string& unit) {
  if (!is_known(spread)) return kDash;
  if (spread.rounds == 1 && spread.least_step < spread.most_step)
    return fmt::format("{}{} (steps {}–{}, n 1)", number_text(spread.median, digits), unit,
                       number_text(spread.least_step, digits),
                       number_text(spread.most_step, digits));
  if (spread.least == spread.most)
    return fmt::format("{}{} (n {})", number_text(spread.median, digits), unit, spread.rounds);
  return fmt::format("{}{} ({}–{}, n {})", number_text(spread.median, digits), unit,
                     number_text(spread.least, digits), number_text(spread.most, digits),
                     spread.rounds);
}

int digits_for(double value) {
  const double size = std::abs(value);
  if (size >= 100 || size == 0) return 0;
  return size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 ? 3 : 5;
}

std::string text(const Spread& spread) {
  return text(spread, digits_for(spread.median));
}

}  // namespace laconic
