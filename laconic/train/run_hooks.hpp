// train/run_hooks.hpp — for tests: a run in which something happens at a given step, and that does
// not depend on the clock. Nothing else includes this.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "laconic/steer/bypass_judge.hpp"
#include "laconic/steer/steering.hpp"
#include "laconic/train/loop.hpp"

namespace laconic {

struct RunHooks {
  // Overrides from the step after so many on, the same on all ranks. A run that goes on finds
  // earlier ones in its checkpoint.
  std::map<std::int64_t, CodecOverrides> changes = {};
  CostsOf costs = {};  // by which a bypass is judged; empty: as measured
  // Steps, by how many were done before, whose loss is taken for NaN once everything has been sent:
  // links and sums have seen good numbers, and must forget them.
  std::set<std::int64_t> spoiled = {};
  // One process hears of a step when the next one has been computed, as it does on a GPU.
  bool leaves_steps = false;
  // Rows of tables go to blocks on the CPU as they do to a GPU, and so do their gradients.
  bool tables_are_apart = false;
};

TrainSummary train(const TrainOptions& options, const RunHooks& hooks);

}  // namespace laconic
