// cli/train_plan.hpp — who runs the ranks of `laconic train`: this process, or workers that it
// starts.
//
// The configuration's mesh says how many ranks a run has. A launcher that has
// started us (launch/place.hpp) and --ranks may say it too, and must agree.
#pragma once

#include <optional>

#include "laconic/cli/arguments.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/launch/place.hpp"

namespace laconic {

struct TrainPlan {
  int workers = 0;  // to start here and watch; 0: this process becomes the worker
  int sharing = 1;  // workers of this run on this machine, which divide its cores
};

// Pure. Throws ConfigError with every contradiction.
TrainPlan plan_train(const TrainCommand& command, const RunConfig& config,
                     const std::optional<Place>& place);

// Compute threads for each of `sharing` workers on this machine, where this process may use
// `usable` cores. A launcher may have divided them already: then our affinity mask has fewer
// processors than that of our parent, and the division is kept. Pure.
int threads_per_worker(int usable, int sharing, int mask, int parents_mask);

}  // namespace laconic
