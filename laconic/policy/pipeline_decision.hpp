// policy/pipeline_decision.hpp — what a run decides about its pipeline before the first step. Pure.
//
// Most of a plan follows from the configuration. What does not (times that were
// measured, a schedule read from a file) is decided by rank 0 and told to all as
// a text, which also goes into checkpoints: a run that goes on does as it did.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {

struct PipelineDecisions {
  Schedule schedule;                // compute actions
  std::vector<std::int64_t> split;  // layers of each stage: blocks without the first and the last
  GradientSends encoded;            // pp.gradient; empty: all
  int encoded_ranks = 0;            // dp.gradient.stages: the first so many pipeline ranks
  bool operator==(const PipelineDecisions&) const = default;
};
std::string to_json(const PipelineDecisions& decisions);
PipelineDecisions parse_decisions(std::string_view json);  // throws ConfigError

// What is impossible, as far as the configuration alone tells. Reads the schedule's file, if there
// is one.
Problems check_pipeline(const RunConfig& config);

// Seconds of forward and of backward of a block, for a microbatch of the run.
struct BlockTimes {
  double forward = 0;
  double backward = 0;
};
// What estimate() needs, from the times of the blocks (by block) and the links.
Costs costs_of(const RunConfig& config, const ModelSpec& spec, const PipelineDecisions& decisions,
               const std::vector<BlockTimes>& blocks, const LinkFacts& link);

// Whether the configuration asks for something that depends on the times of blocks.
bool needs_block_times(const RunConfig& config);
// `blocks` has the times, or zeros where nothing asks for them. Requires: check_pipeline(config) is
// empty. Throws ConfigError when the model does not fit.
PipelineDecisions decide_pipeline(const RunConfig& config, const ModelSpec& spec,
                                  const LinkFacts& link, const std::vector<BlockTimes>& blocks);

// Whether a run that goes on can do by what was decided before: not if the schedule's file says
// something else by now. Requires: no key was changed that decisions depend on.
bool still_holds(const PipelineDecisions& decisions, const RunConfig& config);

// Bytes of the budget that references of so many samples take at one end of such a link, over which
// `seam` travels; 0: it has none.
std::uint64_t reference_bytes(const LinkSpec& link, const std::vector<SeamTensor>& seam,
                              std::uint64_t samples);

}  // namespace laconic
