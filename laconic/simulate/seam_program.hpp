// simulate/seam_program.hpp — what crosses the boundary between two stages, as messages.
#pragma once

#include <vector>

#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

// One tensor of a seam on its way between two ranks, for one microbatch.
struct SeamMessage {
  double bytes = 0;     // of the message
  double elements = 0;  // that are encoded and decoded,
  CodecSpec codec;      // by this
};

// `is_raw`: the plan does not encode this one. With a delta memory bytes are a mean: some frames
// have a hash, by sample.
std::vector<SeamMessage> seam_messages(const SimulationRequest& request, Rank rank, int edge,
                                       bool is_activation, bool is_raw);

}  // namespace laconic
