// architecture/map_chain.hpp — whether the linear maps of a layer lead from the stream back to it.
//
// A map into a branch leaves inner activations, which lie on other ranks of a grid than the stream
// does (layout/grid_plan.hpp), and only a map out of it takes them. So the maps of a layer
// alternate, and are even in number: an odd chain would multiply what lies elsewhere, also where
// all sizes fit. Maps of one input count as one (architecture/joined_maps.hpp); those of a memory
// join the branch that is open, and may open it.
//
// Embeddings and heads are no layers: what they end in is their own matter.
//
// Pure and std only.
#pragma once

#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/problem.hpp"

namespace laconic {

// Every map that takes what the one before has not left, and every layer that does not end in the
// stream; those of like layers once. They are at "mesh.tp".
Problems check_chains(const ModelSpec& spec);

}  // namespace laconic
