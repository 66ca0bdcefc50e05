#include "laconic/simulate/rank_work.hpp"

namespace laconic {

namespace {

constexpr double kCopy = 1, kScale = 1;      // one number read, one written
constexpr double kAdd = 1.5;                 // two read, one written
constexpr double kDenominator = 3 * kScale;  // its root, scaled, and more than zero
constexpr double kFloatBytes = 4;

double over(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

}  // namespace

void add_factors(const SharedLowRankSpec& spec, const TensorSpec& tensor, double share,
                 FactorWork& work) {
  const double elements = share * static_cast<double>(elements_of(tensor));
  const auto rank = static_cast<double>(factor_rank(spec, tensor));
  if (rank == 0) {
    work.raw += elements;
    return;
  }
  const MatrixShape shape = matrix_shape(tensor);
  const double rows = share * static_cast<double>(shape.rows),
               columns = share * static_cast<double>(shape.columns);
  work.matrices += elements;
  work.left += rows * rank;
  work.right += columns * rank;
  work.products += elements * rank;
  work.left_columns += 2 * rows * rank * rank;
  work.right_columns += 2 * columns * rank * rank;
}

// begin: the residual is added to a copy, the start made orthonormal, and multiplied. finish: the
// product of both factors becomes a sum, and is taken from the copy; what is raw is made a mean,
// and a sum again.
FactorSeconds factor_seconds(const FactorWork& work, bool has_feedback, const HostDevice& device) {
  const FactorRate rate = factor_rate(device);
  const double product = over(work.products, rate.product);
  const auto passes = [&](double copies, double elements) {
    return pass_seconds(copies, elements, device);
  };
  return {.begin = over(work.right_columns, rate.orthonormal) + product +
                   passes(has_feedback ? kCopy + kAdd : 0, work.matrices) + passes(kCopy, work.raw),
          .project = over(work.left_columns, rate.orthonormal) + product,
          .finish = product + passes(kScale + (has_feedback ? kAdd : 0), work.matrices) +
                    passes(kScale + kCopy, work.raw)};
}

// update/linear_rule.cpp, diloco_rule.cpp and sparse_rule.cpp, operation by operation.
ParameterPasses parameter_passes(const LocalSection& local) {
  if (local.steps == 0) return {.together = kCopy};
  switch (local.method) {
    case LocalMethod::linear: {
      // Where steps are made before changes come, what left is kept, and the difference added.
      const bool moves_on = local.overlap > 1;
      return {.together = kCopy + kScale,
              .leaving = kCopy + kAdd + kDenominator + kAdd + kScale + (moves_on ? kCopy : 0),
              .arriving = kDenominator + kAdd + kAdd + (moves_on ? kAdd + kScale + kAdd : kCopy)};
    }
    case LocalMethod::sparse_loco:
      return {.leaving = kScale + kAdd + kAdd, .arriving = kScale + kAdd + kCopy};
    case LocalMethod::diloco:
    case LocalMethod::streaming_diloco:
      return {.leaving = kCopy + kAdd + kScale, .arriving = kScale + kAdd + kAdd + kAdd + kCopy};
  }
  return {};
}

double pass_seconds(double copies, double elements, const HostDevice& device) {
  return over(copies * kFloatBytes * elements, device.copy_bytes_per_second);
}

}  // namespace laconic
