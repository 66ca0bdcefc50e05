// plan/row_cost.hpp — what rows of an embedding table cost a rank of a step, where they travel
// (docs/embedding.md): the messages that simulate/row_program.hpp counts, by how many rows
// simulate/row_load.hpp expects. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/plan/sum_cost.hpp"
#include "laconic/simulate/row_load.hpp"

namespace laconic {

// Of one table. An exchange counts as a sum without a way down: its bytes are those that all
// members together have for a rank, its own included.
struct RowCost {
  std::size_t parameter = 0;
  std::size_t block = 0;       // that looks it up first, and completes its gradient
  SumCost rows;                // on their way to who reads them
  SumCost prior, delayed;      // gradients that the step ends with, and that the next step may have
  double copied_bytes = 0;     // each time that rows are put where they belong
  double updated = 0;          // elements
  bool asks_for_norm = false;  // of all ranks, before anything is updated
};

// Of a configuration that moves them, and loads for its number of replicas, of whatever method.
// Requires: embedding.rows.method is none that is still to be decided.
std::vector<RowCost> row_costs(const RunConfig& config, const ModelSpec& spec,
                               const std::vector<RowLoad>& loads, const Hosts& hosts,
                               const HostDevice& device);

}  // namespace laconic
