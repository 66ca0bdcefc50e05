// train/code_start.hpp — learned codes that begin with what activations have most of.
#pragma once

#include <functional>

#include "laconic/grid/grid.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

// Makes the maps of all codes projections on the principal directions (uncentred: the maps have no
// bias) of what `forward` sends. Collective: ranks along dp must go forward with the same samples.
void start_codes_by_pca(Weights& weights, TensorGrid& grid, const std::function<void()>& forward);

}  // namespace laconic
