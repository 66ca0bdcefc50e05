// update/grid_memory.hpp — what the sums of a tensor grid remember, as a row of the registry.
#pragma once

#include "laconic/grid/grid.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// Residuals of weights' gradients belong to a rank of a mesh: on another one they are dropped, and
// a note says so. Requires: grid and world outlive the registry.
void add_grid_memory(TensorGrid& grid, const World& world, LinkRegistry& registry);

}  // namespace laconic
