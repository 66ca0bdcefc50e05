// checkpoint/collect.hpp — a model whose parts are on many ranks, brought to rank 0 piece by piece.
//
// Rank 0 asks for parameters and moments in the order in which a checkpoint holds
// them, in pieces of at most 4 MiB, and each comes from the ranks that have some of it. It asks for
// the next while it writes one, and for more as long as all that it has asked for is below 4 MiB.
// So its inbox holds two pieces, or 4 MiB of small ones, however many ranks there are: beside its
// share nobody needs room for more. Where several ranks hold a tensor, the first replica gives it,
// and a shared parameter the rank with its first user; what a tensor grid or the replicas have cut
// is put together piece by piece.
#pragma once

#include "laconic/checkpoint/checkpoint.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// On rank 0: give() runs on the others meanwhile. Throws PeerLost, Timeout.
// Requires: everything outlives the source; `number` is new with every collection.
ModelSource collecting_source(World& world, const PipelinePlan& plan, const Weights& weights,
                              const OptimiserState& optimiser, OptimiserKind kind,
                              std::uint64_t number);
// On all others.
void give(World& world, const Weights& weights, const OptimiserState& optimiser,
          std::uint64_t number);

}  // namespace laconic
