#include "laconic/train/gemm_rate.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "laconic/base/clock.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kLeastWidth = 384, kMostWidth = 8192;
constexpr double kLeastSeconds = 1e-3;
constexpr int kRepeats = 4;

// The best of a few; the first wakes threads and touches pages.
double seconds_of_product(const at::Tensor& a, const at::Tensor& b) {
  double best = 1e30;
  for (int i = 0; i <= kRepeats; ++i) {
    const Stopwatch watch;
    const at::Tensor product = a.mm(b);
    if (!product.is_cpu()) product.select(0, 0).select(0, 0).item<double>();  // waits for it
    if (i > 0) best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

double measure_gemm_rate(const at::TensorOptions& wanted) {
  const at::NoGradGuard no_grad;
  // The CPU computes with short floats as float32 (model/ops.hpp).
  const bool is_short =
      wanted.device().is_cpu() && c10::elementSize(at::typeMetaToScalarType(wanted.dtype())) < 4;
  const at::TensorOptions options = is_short ? wanted.dtype(at::kFloat) : wanted;
  for (std::int64_t width = kLeastWidth;; width *= 2) {
    const at::Tensor a = at::full({width, width}, 0.5, options);
    const double seconds = seconds_of_product(a, a);
    if (seconds < kLeastSeconds && width < kMostWidth) continue;
    const auto n = static_cast<double>(width);
    return 2 * n * n * n / seconds;
  }
}

}  // namespace laconic
