#include "laconic/link/fidelity.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// Returns the ratio of two norms, given squared. Something lost of nothing is infinitely much.
double root_ratio(double part, double whole) {
  if (whole > 0) return std::sqrt(part / whole);
  return part == 0 ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace

Fidelity& Fidelity::operator+=(const Fidelity& other) {
  messages += other.messages;
  truth += other.truth;
  decoded += other.decoded;
  product += other.product;
  error += other.error;
  residual += other.residual;
  return *this;
}

double Fidelity::cosine() const {
  if (truth == 0 && decoded == 0) return 1;
  if (truth == 0 || decoded == 0) return 0;
  return std::clamp(product / (std::sqrt(truth) * std::sqrt(decoded)), -1.0, 1.0);
}

double Fidelity::relative_error() const {
  return root_ratio(error, truth);
}

double Fidelity::residual_ratio() const {
  return root_ratio(residual, truth);
}

double square_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return sum;
}

Fidelity compare(std::span<const float> truth, std::span<const float> decoded) {
  LACONIC_ASSERT(truth.size() == decoded.size(), "tensors of different sizes");
  Fidelity sums{.messages = 1};
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double x = truth[i], y = decoded[i];
    sums.truth += x * x;
    sums.decoded += y * y;
    sums.product += x * y;
    sums.error += (y - x) * (y - x);
  }
  return sums;
}

}  // namespace laconic
