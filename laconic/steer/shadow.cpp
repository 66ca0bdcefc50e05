#include "laconic/steer/shadow.hpp"

#include <fmt/format.h>

#include <cmath>

#include "laconic/link/fidelity.hpp"

namespace laconic {

namespace {

double product_of(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).mul(b.to(at::kDouble)).sum().item<double>();
}

// Compares what this rank speaks for: replicas hold the same sums, stages the same shared
// parameters.
Fidelity share_of(const World& world, const Weights& weights, const ShadowStep& shadow) {
  Fidelity share;
  if (world.dp_member() != 0) return share;
  for (std::size_t p = 0; p < weights.parameters.size(); ++p) {
    const at::Tensor& gradient = weights.parameters[p].gradient;
    const at::Tensor& truth = shadow.gradients[p];
    if (!speaks_for(weights, weights.parameters[p]) || !gradient.defined() || !truth.defined())
      continue;
    share += {.messages = 1,
              .truth = product_of(truth, truth),
              .decoded = product_of(gradient, gradient),
              .product = product_of(gradient, truth)};
  }
  return share;
}

}  // namespace

std::string to_text(const ShadowReport& r) {
  return fmt::format("guard: shadow at step {}: cosine {:.4f}, norm ratio {:.3f}, loss {:+.4f}",
                     r.step, r.cosine, r.norm_ratio, r.loss_difference);
}

ShadowReport compare(World& world, const Weights& weights, const ShadowStep& shadow,
                     const Measured& measured) {
  Fidelity all;
  for (const Fidelity& share : world.gather_values(share_of(world, weights, shadow))) all += share;
  return {.step = shadow.step,
          .cosine = all.cosine(),
          .norm_ratio = all.truth > 0 ? std::sqrt(all.decoded / all.truth) : 1,
          .loss_difference = measured.loss - shadow.measured.loss};
}

}  // namespace laconic
