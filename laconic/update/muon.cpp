#include "laconic/update/muon.hpp"

#include <algorithm>
#include <cmath>

#include "laconic/update/kernel/update.hpp"

namespace laconic {

namespace {

// The quintic x -> a x + b x^3 + c x^5 of Jordan et al.: steep at 0, and near 1 above it.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr int kIterations = 5;
constexpr double kLeastNorm = 1e-7;

// On the CPU in a fixed order, so that it does not depend on the number of threads.
double norm_on_cpu(const at::Tensor& matrix) {
  const at::Tensor flat = matrix.contiguous();
  if (flat.scalar_type() == at::kDouble)
    return std::sqrt(
        kernel::update<double>().sum_of_squares(flat.data_ptr<double>(), flat.numel()));
  return std::sqrt(kernel::update<float>().sum_of_squares(flat.data_ptr<float>(), flat.numel()));
}

// By its norm, which on a GPU stays there: nobody waits for it.
at::Tensor normalised(const at::Tensor& matrix) {
  if (matrix.is_cpu()) return matrix.mul(1 / std::max(norm_on_cpu(matrix), kLeastNorm));
  return matrix.mul(matrix.norm().clamp_min(kLeastNorm).reciprocal());
}

}  // namespace

// With X of at most as many rows as columns, A = X X^T is the smaller of the two squares.
at::Tensor orthogonalise(const at::Tensor& matrix) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = normalised(matrix);
  if (is_tall) x = x.t().contiguous();
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor a = x.mm(x.t());
    const at::Tensor b = a.mul(kCubic).addmm_(a, a, 1, kQuintic);
    x = x.mul(kLinear).addmm_(b, x);
  }
  return is_tall ? x.t() : x;
}

double muon_scale(MuonScale scale, std::int64_t inputs, std::int64_t outputs) {
  const auto in = static_cast<double>(inputs), out = static_cast<double>(outputs);
  if (scale == MuonScale::match_adamw) return 0.2 * std::sqrt(std::max(in, out));
  return std::sqrt(std::max(1.0, out / in));
}

void muon_update(const MuonRule& rule, const at::Tensor& gradient, at::Tensor value,
                 at::Tensor& moment) {
  moment.mul_(rule.momentum).add_(gradient);
  const at::Tensor direction = orthogonalise(gradient.add(moment, rule.momentum));  // Nesterov
  value.mul_(1 - rule.lr * rule.weight_decay);
  const std::int64_t inputs = value.size(rule.is_out_in ? 1 : 0);
  const std::int64_t outputs = value.size(rule.is_out_in ? 0 : 1);
  value.sub_(direction, rule.lr * muon_scale(rule.scale, inputs, outputs));
}

}  // namespace laconic
