#include "laconic/metric/metric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

void require_pairs(std::size_t predicted, std::size_t actual) {
  LACONIC_ASSERT(predicted == actual && predicted > 0, fmt::format("{} and {}", predicted, actual));
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Deviations from the mean, scaled to length 1; empty when they have no direction.
std::vector<double> direction_of(std::span<const double> values) {
  // Equal values may leave deviations of rounding.
  if (std::ranges::all_of(values, [&](double value) { return value == values[0]; })) return {};
  const double mean = mean_of(values);
  std::vector<double> deviations(values.begin(), values.end());
  double largest = 0;
  for (double& deviation : deviations) {
    deviation -= mean;
    largest = std::max(largest, std::abs(deviation));
  }
  if (!std::isfinite(largest) || largest == 0) return {};
  double squares = 0;
  for (double& deviation : deviations) {
    deviation /= largest;  // squares of any values neither vanish nor overflow
    squares += deviation * deviation;
  }
  for (double& deviation : deviations) deviation /= std::sqrt(squares);
  return deviations;
}

// 1 for the least value; equal ones share the mean of their places.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double rank = static_cast<double>(first + 1 + end) / 2;
    for (std::size_t place = first; place < end; ++place) ranks[order[place]] = rank;
  }
  return ranks;
}

bool are_finite(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

}  // namespace

double accuracy(Labels predicted, Labels actual) {
  require_pairs(predicted.size(), actual.size());
  const auto equal = std::transform_reduce(predicted.begin(), predicted.end(), actual.begin(),
                                           std::int64_t{0}, std::plus<>(), std::equal_to<>());
  return static_cast<double>(equal) / static_cast<double>(actual.size());
}

double majority(Labels actual) {
  std::map<std::int32_t, std::size_t> counts;
  std::size_t most = 0;
  for (const std::int32_t label : actual) most = std::max(most, ++counts[label]);
  return static_cast<double>(most) / static_cast<double>(actual.size());
}

double f1(Labels predicted, Labels actual) {
  require_pairs(predicted.size(), actual.size());
  std::int64_t found = 0, mentions = 0;  // positives of both sides; of either, both counted
  for (std::size_t i = 0; i < actual.size(); ++i) {
    found += predicted[i] == 1 && actual[i] == 1;
    mentions += (predicted[i] == 1) + (actual[i] == 1);
  }
  return found == 0 ? 0 : 2 * static_cast<double>(found) / static_cast<double>(mentions);
}

double matthews(Labels predicted, Labels actual) {
  require_pairs(predicted.size(), actual.size());
  std::map<std::int32_t, std::pair<double, double>> counts;  // predicted, actual
  double equal = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    counts[predicted[i]].first += 1;
    counts[actual[i]].second += 1;
    equal += predicted[i] == actual[i];
  }
  const auto samples = static_cast<double>(actual.size());
  double both = equal * samples, of_predicted = samples * samples, of_actual = samples * samples;
  for (const auto& [label, count] : counts) {
    both -= count.first * count.second;
    of_predicted -= count.first * count.first;
    of_actual -= count.second * count.second;
  }
  const double product = of_predicted * of_actual;
  return product == 0 ? 0 : both / std::sqrt(product);
}

std::optional<double> pearson(std::span<const double> predicted, std::span<const double> actual) {
  require_pairs(predicted.size(), actual.size());
  if (!are_finite(predicted) || !are_finite(actual)) return {};
  const std::vector<double> a = direction_of(predicted), b = direction_of(actual);
  if (a.empty() || b.empty()) return {};
  return std::clamp(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), -1.0, 1.0);
}

std::optional<double> spearman(std::span<const double> predicted, std::span<const double> actual) {
  require_pairs(predicted.size(), actual.size());
  if (!are_finite(predicted) || !are_finite(actual)) return {};
  return pearson(ranks_of(predicted), ranks_of(actual));
}

}  // namespace laconic
