// train/loop.hpp — a whole training run: start, steps, evaluations, checkpoints, reports, end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/train/evaluate.hpp"
#include "laconic/train/resume.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

struct TrainOptions {
  RunConfig config;
  StartOptions start;
  // Asked after every step; not 0: a signal, and the run saves and ends.
  int (*stop_signal)() = nullptr;
  World* world = nullptr;  // null: alone
};

// What the ranks together sent, by traffic class.
struct TrafficTotal {
  Traffic traffic = Traffic::control;
  Count sent;   // over all ranks
  Times times;  // mean over ranks
};

struct TrainSummary {
  std::int64_t first_step = 0;  // done before this run
  std::int64_t step = 0;        // done now
  std::int64_t steps = 0;       // asked for
  std::int64_t skipped = 0;
  std::int64_t parameters = 0;
  std::int64_t tokens = 0;               // trained on by this run
  double loss = 0;                       // of the last step, if this run made one
  std::optional<Evaluation> evaluation;  // the last one
  double train_seconds = 0;              // in steps alone
  double total_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
  std::string checkpoint;  // last one written, or resumed from
  std::string mesh;        // "dp 4"; empty: one rank
  std::vector<TrafficTotal> traffic;
  int signal = 0;  // that ended the run early
};

// Collective. Rank 0 writes and speaks, the others only compute. Throws ConfigError, FileError,
// SystemError, PeerLost, Timeout, std::runtime_error (see train_step).
TrainSummary train(const TrainOptions& options);

std::string to_text(const TrainSummary& summary);  // the table at the end
std::string to_text(const std::vector<TrafficTotal>& traffic);
std::string to_json(const TrainSummary& summary, const RunConfig& config);  // for --json

std::int64_t peak_memory_bytes();  // resident, of this process so far

}  // namespace laconic
