// train/basis_start.hpp — directions of projected boundaries that begin with what rows have most
// of.
#pragma once

#include <vector>

#include "laconic/model/model.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// Of the first step, or as many as it has.
inline constexpr std::int64_t kBasisSamples = 64;

// The `count` directions that rows with this X^T X have most energy in, as rows, most first.
at::Tensor principal_directions(const at::Tensor& square, std::int64_t count);

// Sets the bases that the model keeps frozen, or both maps of a boundary, boundary after boundary:
// each is found in what comes through those before it. `grid` may be null. Collective: all ranks,
// with the same batches.
void start_bases_by_pca(Weights& weights, Pipeline& pipeline, TensorGrid* grid, World& world,
                        const std::vector<Batch>& batches);

}  // namespace laconic
