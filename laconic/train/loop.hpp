// train/loop.hpp — a whole training run: start, steps, evaluations, checkpoints, reports, end.
#pragma once

#include "laconic/config/run_config.hpp"
#include "laconic/train/bypass_judge.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/resume.hpp"
#include "laconic/train/steering.hpp"
#include "laconic/train/summary.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

struct TrainOptions {
  RunConfig config;
  StartOptions start;
  // Asked after every step; not 0: a signal, and the run saves and ends.
  int (*stop_signal)() = nullptr;
  World* world = nullptr;  // null: alone
  LinkFacts link;          // rank 0's count
  // Before the step after so many, classes are treated so, the same on all ranks: for whoever
  // steers from outside. A run that goes on finds earlier ones in its checkpoint.
  std::map<std::int64_t, CodecOverrides> changes;
  CostsOf costs = {};  // by which a bypass is judged (train/bypass_judge.hpp); empty: as measured
};

// Collective. Rank 0 writes and speaks, the others only compute. Throws ConfigError, FileError,
// SystemError, PeerLost, Timeout, std::runtime_error (see train_step).
TrainSummary train(const TrainOptions& options);

}  // namespace laconic
