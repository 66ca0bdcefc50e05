// train/pipeline_plan.hpp — what a run decides about its pipeline before the first step.
//
// Most of a plan follows from the configuration. What does not (times that were
// measured, a schedule read from a file) is decided by rank 0 and told to all as
// a text, which also goes into checkpoints: a run that goes on does as it did.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/policy/pipeline_decisions.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {

std::string to_json(const PipelineDecisions& decisions);
PipelineDecisions parse_decisions(std::string_view json);  // throws ConfigError

inline constexpr int kBlockTimings = 3;
// By block: one of each kind is measured so many times, and the best counts.
std::vector<BlockTimes> measure_blocks(const RunConfig& config, const Family& family,
                                       const at::TensorOptions& options);

// Measures only if the configuration asks for something that depends on it.
// Requires: check_pipeline(config) is empty, and pipeline.schedule is not "auto", which is
// schedule_choice.hpp's. Throws ConfigError when the model does not fit.
PipelineDecisions decide_pipeline(const RunConfig& config, const Family& family,
                                  const LinkFacts& link, const at::TensorOptions& options);
// The configuration with what was decided about the size of microbatches.
RunConfig as_decided(RunConfig config, const PipelineDecisions& decisions);

// Whether a run that goes on can do by what was decided before: not if the schedule's file says
// something else by now. Requires: no key was changed that decisions depend on.
bool still_holds(const PipelineDecisions& decisions, const RunConfig& config);

}  // namespace laconic
