// metric/metric.hpp — how well predictions agree with the truth, as GLUE measures it.
//
// Pure functions. Values are those of scikit-learn (accuracy, F1, Matthews) and
// of SciPy (Pearson, Spearman). Both spans have the same size, which is not 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace laconic {

using Labels = std::span<const std::int32_t>;

// The share of equal labels.
double accuracy(Labels predicted, Labels actual);

// The accuracy of always answering the most frequent class.
double majority(Labels actual);

// The harmonic mean of precision and recall of class 1; every other label is negative. 0 when
// nothing is positive on either side, or nothing positive was found.
double f1(Labels predicted, Labels actual);

// Matthews correlation, of any number of classes. 0 where it is undefined: all predictions, or all
// labels, are of one class.
double matthews(Labels predicted, Labels actual);

// Nothing where the correlation is undefined: fewer than two values, one side constant, or a value
// that is not finite.
std::optional<double> pearson(std::span<const double> predicted, std::span<const double> actual);

// Pearson's correlation of the ranks; equal values share the mean of their ranks.
std::optional<double> spearman(std::span<const double> predicted, std::span<const double> actual);

}  // namespace laconic
