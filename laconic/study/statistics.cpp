#include "laconic/study/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "laconic/base/error.hpp"

namespace laconic {

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

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "–";
}

int digits_for(double value, int figures) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  return std::clamp(figures - before, 0, 9);
}

}  // namespace laconic
