// train/used_model.hpp — a finished model, whole in this process or on a tensor grid.
#pragma once

#include <memory>
#include <string>

#include "laconic/config/run_config.hpp"
#include "laconic/model/weights.hpp"
#include "laconic/train/model_ranks.hpp"

namespace laconic {

struct UsedModel {
  std::string folder;
  Weights weights;                   // this rank's part
  std::shared_ptr<TensorGrid> grid;  // null: they are whole
  ModelRanks ranks;                  // has a world
};

// Reads the model of a checkpoint or a Hugging Face folder, each rank its part alone; device,
// precision and grid are those of the configuration. Throws FileError, ConfigError, on all ranks
// alike where the grid cannot hold the model. Requires: the world outlives it.
UsedModel load_model(const std::string& folder, const RunConfig& config, int local_rank,
                     World& world);

}  // namespace laconic
