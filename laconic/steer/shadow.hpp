// steer/shadow.hpp — the gradient of a step beside that of its shadow, which lost nothing on the
// way.
//
// Everything that is lost anywhere comes together in the gradient: messages between
// stages distort what later stages compute, sums lose a part, residuals add what
// was lost before. One cosine over all parameters says what is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/update/update_rule.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// What a coming step would compute if nothing were lost between ranks (shadow_step in
// train/step.hpp).
struct ShadowStep {
  std::int64_t step = 0;  // counted from 1
  Measured measured;
  std::vector<at::Tensor> gradients;  // by parameter, copies
};

struct ShadowReport {
  std::int64_t step = 0;       // counted from 1
  double cosine = 1;           // of the step's gradient and its shadow's
  double norm_ratio = 1;       // the step's by its shadow's
  double loss_difference = 0;  // the step's less its shadow's
  bool operator==(const ShadowReport&) const = default;
};
// "guard: shadow at step 100: cosine 0.9987, norm ratio 1.002, loss +0.0003"
std::string to_text(const ShadowReport& report);

// Each rank compares what it holds; a parameter that several hold counts once. The same on all
// ranks. Collective. Requires: the weights' gradients are those of the step, and `measured`
// belongs to them.
ShadowReport compare(World& world, const Weights& weights, const ShadowStep& shadow,
                     const Measured& measured);

}  // namespace laconic
