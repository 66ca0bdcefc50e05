// train/schedule_choice.hpp — pipeline.schedule = "auto" of a run: policy/schedule_trials.hpp with
// what ranks measure. Each size of microbatches is measured, since small products are less
// efficient than large ones; messages count at the rate of the pre-flight, and memory as
// run_estimate.hpp counts it.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/policy/schedule_trials.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/run_estimate.hpp"

namespace laconic {

// What is known of a run before its pipeline is decided about.
struct RunFacts {
  const ModelSpec& spec;  // with the codes of a grid
  const GridPlan& grid;
  LinkFacts link;
  std::uint64_t samples = 0;  // in the training data
  const std::vector<RankResources>& ranks;
  int processors = 0;  // of a machine, which its ranks share; 0: each rank computes by itself
};
// Those of this machine, as if all were alike; 0 where a rank has a GPU.
int shared_processors(const std::vector<RankResources>& ranks);
EstimateRequest request_of(const RunConfig& decided, const PipelineDecisions& decisions,
                           const RunFacts& facts);

// Where no candidate fits in memory, the one that needs least: the caller refuses it with the
// numbers. Requires: check_pipeline(config) is empty, and mesh.pp > 1.
PipelineDecisions choose_schedule(const RunConfig& config, const RunFacts& facts,
                                  const TimesOfSize& times_of);
// Measures.
PipelineDecisions choose_schedule(const RunConfig& config, const Family& family,
                                  const RunFacts& facts, const at::TensorOptions& options);

}  // namespace laconic
