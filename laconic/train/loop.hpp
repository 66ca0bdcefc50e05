// train/loop.hpp — a whole training run: start, steps, evaluations, checkpoints, reports, end.
#pragma once

#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/summary.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

struct TrainOptions {
  RunConfig config;
  StartOptions start;
  std::int64_t memory_bytes = 0;  // what this rank's machine has; 0: unknown
  // Asked after every step; not 0: a signal, and the run saves and ends.
  int (*stop_signal)() = nullptr;
  // Told which step begins, counted from 1, and 0 when none does any more; may be null.
  void (*step_begins)(std::int64_t step) = nullptr;
  World* world = nullptr;  // null: alone
  LinkFacts link;          // rank 0's count
};

// Collective. Rank 0 writes and speaks, the others only compute. Throws ConfigError, FileError,
// SystemError, PeerLost, Timeout, std::runtime_error (see train_step).
TrainSummary train(const TrainOptions& options);

}  // namespace laconic
