// update/grid_links.hpp — the messages of a tensor grid as rows of the registry, one for each
// class.
#pragma once

#include "laconic/grid/grid.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// Codecs may be overridden and fidelity measured. Residuals and warm starts of weights' gradients
// belong to a rank of a mesh: on another one they are dropped, and a note says so. Requires: grid
// and world outlive the registry.
void add_grid_links(TensorGrid& grid, const World& world, LinkRegistry& registry);

}  // namespace laconic
