// train/pipeline_plan.hpp — the decisions of a run about its pipeline
// (policy/pipeline_decision.hpp) from times that are measured here, and the plan that all ranks
// share.
#pragma once

#include <vector>

#include "laconic/policy/pipeline_decision.hpp"
#include "laconic/runtime/pipeline.hpp"

namespace laconic {

// By block: those of one kind are measured once, and the best of a few counts.
std::vector<BlockTimes> measure_blocks(const RunConfig& config, const Family& family,
                                       const at::TensorOptions& options);

// Measures only if the configuration asks for something that depends on it.
// Requires: check_pipeline(config) is empty. Throws ConfigError when the model does not fit.
PipelineDecisions decide_pipeline(const RunConfig& config, const Family& family,
                                  const LinkFacts& link, const at::TensorOptions& options);

PipelinePlan plan_of(const RunConfig& config, const PipelineDecisions& decisions);

}  // namespace laconic
