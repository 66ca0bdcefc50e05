// update/lateness.hpp — which sums are used a step late.
//
// A sum has a lateness, 0 or 1, that the configuration and the number of the step decide: all ranks
// know it without a word. Late, what a rank adds to the sum of step t is kept until step t + 1
// begins; it travels while that one computes, and the update of t + 1 uses it. So between two steps
// nothing is under way, and what is kept is part of the checkpoint.
#pragma once

#include <cstdint>

#include "laconic/config/run_config.hpp"

namespace laconic {

struct Lateness {
  bool of_blocks = false;
  bool of_shared = false;  // parameters of several stages
  std::int64_t after = 0;  // so many first steps use their own sums
};

// Where all sums are late, so are those of stages, and after as many steps.
inline Lateness lateness_of(const RunConfig& config) {
  const bool is_late = config.dp_gradient.late > 0;
  return {.of_blocks = is_late,
          .of_shared = is_late || config.embedding_tied.late > 0,
          .after = is_late ? config.dp_gradient.late_after : config.embedding_tied.late_after};
}

}  // namespace laconic
