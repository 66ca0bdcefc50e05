// plan/pipeline_limit.hpp — what links leave of a pipeline's speed, whatever a plan says. Pure.
//
// Arithmetic alone, for one case: fast devices on slow links. A stage between two others sends
// every token's activation on and its gradient back. The shortest messages of which we know that
// the loss stays (changes in 4 bits forward, 6 bits back: presets/ac-sgd.toml) have 1.3 bytes a
// number of the model's width. What links carry beside that of the speed of computing is all that a
// pipeline can have of it, if it waits for nothing else.
#pragma once

#include <string>

#include "laconic/plan/candidate.hpp"

namespace laconic {

struct PipelineLimit {
  double tokens_per_second = 0;  // all ranks together, computing alone
  double carried_bytes = 0;      // a token each way, by the slowest card at that speed
  double needed_bytes = 0;       // a token each way
  double share() const { return carried_bytes / needed_bytes; }  // above 1: links are no limit
};
PipelineLimit pipeline_limit(const PlanSpace& space);

// For people, where all devices are GPUs on several hosts and less than a quarter of the speed is
// left; otherwise empty.
std::string pipeline_warning(const PlanSpace& space);

}  // namespace laconic
