// train/summary.hpp — what a run amounted to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/checkpoint/validation_state.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/engine/meter.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/steer/guarding.hpp"
#include "laconic/train/evaluate.hpp"
#include "laconic/train/run_estimate.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// A class of a tensor grid along some axes of it.
struct AxesTotal {
  std::string axes;  // "tp0"
  Count sent;
  Times times;
};

// What the ranks together sent, by traffic class.
struct TrafficTotal {
  Traffic traffic = Traffic::control;
  Count sent;                        // over all ranks
  Times times;                       // mean over ranks
  std::vector<AxesTotal> axes = {};  // empty: it has none
};
// Under way while the computing thread had something else to do.
double hidden_seconds(const Times& times);

// One rank's part of a pipeline: seconds of one microbatch on average, over all its stages.
struct RankTimes {
  double forward = 0;
  double backward = 0;  // both halves
  double waiting = 0;   // for neighbours, in the whole run
};

// All ranks together.
struct PipelineTotal {
  std::vector<RankTimes> ranks;  // by rank; empty without a pipeline
  std::uint64_t repaired = 0;    // samples that an end did not understand and got again
  std::uint64_t references = 0;  // samples remembered, over all ends
  std::uint64_t reference_bytes = 0;
  std::uint64_t not_admitted = 0;     // visits of samples for which there was no room
  double reference_wait_seconds = 0;  // that somebody stood still for the disk
  // References on disk: read by the time they were asked for, and not even begun to be read.
  std::uint64_t prefetch_hits = 0, prefetch_misses = 0;
};

struct TrainSummary {
  std::int64_t first_step = 0;  // done before this run
  std::int64_t step = 0;        // done now
  std::int64_t steps = 0;       // asked for
  std::int64_t skipped = 0;
  std::int64_t parameters = 0;
  std::int64_t tokens = 0;               // trained on since the start or the last resume
  std::int64_t all_tokens = 0;           // and before
  double flops = 0;                      // of the model, since the start or the last resume
  bool has_worked = true;                // false: the checkpoint had all steps already
  double loss = 0;                       // of the last step, if this run made one
  std::optional<Evaluation> evaluation;  // the last one
  ValidationState validation;            // of the whole run
  bool is_stopped_early = false;         // by evaluate.patience
  double train_seconds = 0;              // in steps alone
  double total_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
  RunEstimate estimate;    // on rank 0
  std::string checkpoint;  // last one written, or resumed from
  std::string mesh;        // "pp 2 x dp 4"; empty: one rank
  std::vector<TrafficTotal> traffic;
  PipelineTotal pipeline;
  GuardSummary guard;
  // Classes that do not travel as configured in the end: {"dp.gradient", "bypassed"}.
  std::vector<std::pair<std::string, std::string>> overrides;
  int signal = 0;  // that ended the run early
};

// Model FLOPs that the steps of this run made, by what the machine can do in that time; 0: unknown.
double mfu_of(const TrainSummary& summary);

// Collective. Every message that was sent is in it, also if it has not left yet. Throws PeerLost,
// Timeout.
std::vector<TrafficTotal> total_traffic(World& world);
PipelineTotal total_pipeline(World& world, Pipeline& pipeline);

std::string to_text(const TrainSummary& summary);  // the table at the end
std::string to_text(const std::vector<TrafficTotal>& traffic);
std::string to_text(const GuardSummary& guard);
std::string to_json(const TrainSummary& summary, const RunConfig& config);  // for --json

std::int64_t peak_memory_bytes();  // resident, of this process so far

}  // namespace laconic
