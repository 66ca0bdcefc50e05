// cli/rank.hpp — this process as one rank of several: meets the others, looks at the network,
// trains, and when a rank is lost says which and why.
#pragma once

#include <functional>

#include "laconic/engine/preflight.hpp"
#include "laconic/launch/place.hpp"
#include "laconic/train/loop.hpp"

namespace laconic {

// What ranks do when they have met, instead of training; `options.world` is there.
using RankWork =
    std::function<TrainSummary(const TrainOptions& options, const PreflightReport& network)>;

// Throws what train() throws. PeerLost and Timeout carry the verdict of all ranks' flight
// recorders, which is also written to FOLDER/flight/; a rank that fails by itself leaves its record
// there for the others. A message that was damaged on the way is a std::runtime_error here. Rank 0
// introduces the ranks and their network to people, unless its output is for programs.
TrainSummary train_as_rank(TrainOptions options, const Place& place, const RankWork& work = {},
                           bool introduces = true);

// Ranks are threads of this process, as many as the mesh has; the summary of rank 0.
TrainSummary train_in_threads(const TrainOptions& options);

}  // namespace laconic
