// policy/schedule_trials.hpp — pipeline.schedule = "auto": who computes what when, by estimate.
//
// Candidates are the kinds that the chunks allow, with microbatches of every size that divides a
// replica's samples and is not above train.microbatch; where that is not given, of at least as many
// microbatches as ranks. Each is decided about as if it had been asked for. Runs and simulations
// differ in where times come from, and in what they know of machines.
//
// Pure.
#pragma once

#include <functional>
#include <vector>

#include "laconic/policy/pipeline_decisions.hpp"
#include "laconic/schedule/choice.hpp"
#include "laconic/schedule/estimate.hpp"

namespace laconic {

// A candidate with all that would follow from it.
struct TriedSchedule {
  ScheduleCandidate candidate;
  PipelineDecisions decisions;
};

// Times of the blocks for microbatches of so many samples.
using TimesOfSize = std::function<std::vector<BlockTimes>(std::int64_t samples)>;
// What a candidate comes to on the machines there are: seconds, held, fits. The estimate knows of
// no machine.
using JudgeSchedule =
    std::function<ScheduleCandidate(const RunConfig&, const PipelineDecisions&, const Timing&)>;

// At least one. Requires: check_pipeline(config) is empty, and mesh.pp > 1.
std::vector<TriedSchedule> try_schedules(const RunConfig& config, const ModelSpec& spec,
                                         const LinkFacts& link, const TimesOfSize& times_of,
                                         const JudgeSchedule& judge);
// Where no candidate fits in memory, the one that holds least.
const TriedSchedule& schedule_to_take(const std::vector<TriedSchedule>& tried);

// The rate that messages are timed by: that of neighbours, or any that is known.
LinkFacts rates_of(LinkFacts link);

}  // namespace laconic
