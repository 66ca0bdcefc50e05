// policy/grid_estimate.hpp — what a step of a configuration would take on its tensor grid, and
// which grid of as many ranks would be best: predictions, without a run.
//
// Of one grid that holds the whole model: pipelines and replicas are left out, which
// train/run_estimate.hpp puts around the same times of blocks. Pure and std only.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "laconic/architecture/family.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// Bytes of one rank, without the program itself.
struct GridBytesHeld {
  double parameters = 0;
  double gradients = 0;
  double optimiser = 0;
  double activations = 0;
  double gathered = 0;
  double total() const { return parameters + gradients + optimiser + activations + gathered; }
};

struct GridEstimate {
  GridPlan plan;
  GridTime step;
  GridBytesHeld memory;
};

// Requires: check_grid_alone(config, family) is empty.
GridEstimate estimate_grid(const RunConfig& config, const Family& family,
                           const GridMachine& machine);

// One method on one grid: an estimate, or why it cannot be.
struct GridCandidate {
  TensorMethod method = TensorMethod::three_d;
  std::array<int, 3> grid = {};  // zeros: the method has none of so many ranks
  std::optional<GridEstimate> estimate;
  Problems problems;
};

// Every method with every grid of so many ranks that it could mean, whatever the model is.
std::vector<std::pair<TensorMethod, std::array<int, 3>>> grids_of_ranks(int ranks);

// Every method on every grid of so many ranks that it could mean, each arrangement once (3d on 1 x
// p x 1 is 1d-sequence, 2.5d without depth is 2d). The fastest first, then those that cannot be.
// Requires: check(family) is empty.
std::vector<GridCandidate> search_grids(const RunConfig& config, const Family& family, int ranks,
                                        const GridMachine& machine);

}  // namespace laconic
