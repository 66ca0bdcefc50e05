// policy/pipeline_decisions.hpp — what is decided about a pipeline before the first step. Pure, but
// that a schedule may be read from its file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/codec/spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/policy/pipeline_plan.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {

struct PipelineDecisions {
  Schedule schedule;                // compute actions
  std::vector<std::int64_t> split;  // layers of each stage: blocks without the first and the last
  GradientSends encoded;            // pp.gradient; empty: all
  int encoded_ranks = 0;            // dp.gradient.stages: the first so many pipeline ranks
  // Where the schedule was chosen: its kind, samples of a microbatch, and why, for people.
  std::string kind = "";
  std::int64_t microbatch = 0;
  std::string why = "";
  bool operator==(const PipelineDecisions&) const = default;
};

PipelineShape shape_of(const RunConfig& config);
bool is_schedule_file(const RunConfig& config);
Schedule schedule_of(const RunConfig& config);  // throws ConfigError

// What is impossible, as far as the configuration alone tells. Reads the schedule's file, if there
// is one.
Problems check_pipeline(const RunConfig& config);

// Seconds of forward and of backward of a block, for a microbatch of the run.
struct BlockTimes {
  double forward = 0;
  double backward = 0;
};
using TimeBlocks = std::function<std::vector<BlockTimes>()>;

// The stages that cost least by these costs of blocks, as pipeline.split = "auto" has them: cut at
// projected boundaries alone, if there are enough of them.
std::vector<BlockRange> cheapest_stages(const std::vector<double>& costs, const ModelSpec& spec,
                                        int stages);

// Everything that crosses a boundary behind this block for one microbatch, as links see it.
std::vector<TensorSpec> boundary_of(const RunConfig& config, const BlockSpec& block);

// What estimate() needs, from the times of the blocks (by block) and the links.
Costs costs_of(const RunConfig& config, const ModelSpec& spec, const PipelineDecisions& decisions,
               const std::vector<BlockTimes>& blocks, const LinkFacts& link);

// Asks for times only if the configuration asks for something that depends on them.
// Requires: check_pipeline(config) is empty, and pipeline.schedule is not "auto", which is
// policy/schedule_trials.hpp's. Throws ConfigError when the model does not fit.
PipelineDecisions decide_pipeline(const RunConfig& config, const ModelSpec& spec,
                                  const LinkFacts& link, const TimeBlocks& time_blocks);

PipelinePlan plan_of(const RunConfig& config, const PipelineDecisions& decisions);

// Bytes of the budget that references of so many samples take at one end of such a link, over which
// `seam` travels; 0: it has none.
std::uint64_t reference_bytes(const LinkSpec& link, const std::vector<SeamTensor>& seam,
                              std::uint64_t samples);

}  // namespace laconic
