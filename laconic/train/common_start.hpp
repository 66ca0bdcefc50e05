// train/common_start.hpp — how all ranks of a run begin with the same, and make sure that they
// still have it.
#pragma once

#include "laconic/checkpoint/resume.hpp"
#include "laconic/steer/steering.hpp"
#include "laconic/train/loop.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/run_estimate.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// What the configuration asks of so many ranks and cannot be.
Problems check_mesh(const RunConfig& config, int ranks);

struct CommonStart {
  Start start;  // of this rank's part of the model
  PipelineDecisions decisions;
  // The checkpoint was made by the same pipeline: what its links remembered is ours.
  bool has_links = false;
  SteeringState steering;  // what was changed about its messages, as far as that is still good
  RunEstimate estimate;    // on rank 0
  std::vector<std::string> gpus;  // for people: a line for each, and warnings; on rank 0
};

// Rank 0 looks at the run's folder and decides; the others do as it does. Collective. Throws
// ConfigError, FileError, SystemError, PeerLost.
CommonStart start_all_ranks(const TrainOptions& options, const DataFacts& data, World& world);

// Replicas that have drifted apart, or stages with different copies of what they share, would go on
// unnoticed for ever: throws std::runtime_error. Collective.
void require_equal_models(const Weights& weights, World& world, std::int64_t step);

}  // namespace laconic
