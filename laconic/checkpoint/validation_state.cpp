#include "laconic/checkpoint/validation_state.hpp"

#include <cmath>

namespace laconic {

bool observe(ValidationState& state, double loss, std::int64_t step, double min_improvement) {
  const bool is_finite = std::isfinite(loss);
  if (is_finite && (!state.reference || loss < *state.reference - min_improvement)) {
    state.reference = loss;
    state.stale = 0;
  } else {
    ++state.stale;
  }
  const bool is_best = is_finite && (!state.best_loss || loss < *state.best_loss);
  if (is_best) {
    state.best_loss = loss;
    state.best_step = step;
  }
  return is_best;
}

bool is_exhausted(const ValidationState& state, std::int64_t patience) {
  return patience > 0 && state.stale >= patience;
}

}  // namespace laconic
