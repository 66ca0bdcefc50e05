// checkpoint/validation_state.hpp — what a run remembers of its evaluations: the best, and how long
// ago it got better. Part of the checkpoint, so that a run that goes on decides as it would have.
#pragma once

#include <cstdint>
#include <optional>

namespace laconic {

struct ValidationState {
  // The least loss, and the step after which it was found; nothing before the first that is finite.
  std::optional<double> best_loss;
  std::int64_t best_step = 0;
  // For early stopping: the loss that must be improved on, and evaluations that did not. It lags
  // behind the best by less than the least improvement.
  std::optional<double> reference;
  std::int64_t stale = 0;
  bool operator==(const ValidationState&) const = default;
};

// Takes in an evaluation after `step`. Returns whether it is the best so far; a loss that is not
// finite never is. Only a loss that is below the reference by more than `min_improvement` makes it
// fresh.
bool observe(ValidationState& state, double loss, std::int64_t step, double min_improvement);

// Whether so many evaluations in a row have not improved; patience = 0: never.
bool is_exhausted(const ValidationState& state, std::int64_t patience);

}  // namespace laconic
