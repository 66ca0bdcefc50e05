#include "laconic/train/gemm_rate.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "laconic/base/clock.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kLeastWidth = 384, kMostWidth = 8192;
constexpr double kLeastSeconds = 1e-3;
constexpr int kRepeats = 4;

double seconds_of_product(const at::Tensor& a) {
  const Stopwatch watch;
  const at::Tensor product = a.mm(a);
  if (!product.is_cpu()) product.select(0, 0).select(0, 0).item<double>();  // waits for it
  return watch.seconds();
}

// The best of a few of the first width that takes long enough. The first product of a width wakes
// threads and touches pages, and does not count.
double measured(const at::TensorOptions& options) {
  for (std::int64_t width = kLeastWidth;; width = std::min(width * 3 / 2, kMostWidth)) {
    const at::Tensor a = at::full({width, width}, 0.5, options);
    seconds_of_product(a);
    double best = seconds_of_product(a);
    if (best < kLeastSeconds && width < kMostWidth) continue;
    for (int i = 1; i < kRepeats; ++i) best = std::min(best, seconds_of_product(a));
    const auto n = static_cast<double>(width);
    return 2 * n * n * n / best;
  }
}

}  // namespace

double measure_gemm_rate(const at::TensorOptions& wanted) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, at::ScalarType>, double> rates;
  // The CPU computes with short floats as float32 (model/ops.hpp).
  const at::ScalarType type = at::typeMetaToScalarType(wanted.dtype());
  const bool is_short = wanted.device().is_cpu() && c10::elementSize(type) < 4;
  const at::TensorOptions options = is_short ? wanted.dtype(at::kFloat) : wanted;
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex);
  double& rate = rates[{options.device().str(), is_short ? at::kFloat : type}];
  if (rate == 0) rate = measured(options);
  return rate;
}

}  // namespace laconic
