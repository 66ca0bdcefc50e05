// policy/rank_memory.hpp — the memory that the ranks of a run need, counted before any of it is
// held. Pure and std only: training refuses by it what does not fit, and plans are made by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/layout/grid_plan.hpp"
#include "laconic/policy/pipeline_decisions.hpp"

namespace laconic {

// Of tables whose rows travel (embedding.rows), where blocks compute on a GPU: they stay in host
// memory, and on the GPU are rows of a step.
struct TableMemory {
  double parameters = 0, copies = 0;  // copies: what blocks on the CPU would have besides
  double optimiser = 0;
  double gradients = 0;  // if they were whole
  double rows = 0;       // that a step reads at most, and their gradients
};

// Bytes of one rank.
struct MemoryEstimate {
  double parameters = 0;
  double gradients = 0;
  double optimiser = 0;
  double activations = 0;  // of all microbatches under way, when they are most
  double references = 0;   // of delta memories, in memory
  double buffers = 0;      // of sums, residuals, messages, local updates
  double sums = 0;         // of these, what is on a GPU that adds: buffers of sums, and residuals,
  double residuals = 0;    // which are there twice
  double program = 0;      // what the process holds already
  // With a GPU: references in its memory, and how many of `references` they are.
  double gpu_references = 0, spared_references = 0;
  TableMemory tables = {};  // of parameters, gradients and optimiser; but for the rows
  double total() const {
    return parameters + gradients + optimiser + activations + references + buffers + program;
  }
  MemoryEstimate& operator+=(const MemoryEstimate& more);

  // The two parts of a rank that computes on a GPU, which may add for it, too.
  MemoryEstimate on_gpu(bool adds) const {
    return {.parameters = parameters - tables.parameters - tables.copies,
            .gradients = gradients - tables.gradients + tables.rows,
            .optimiser = optimiser - tables.optimiser,
            .activations = activations,
            .references = gpu_references,
            .buffers = adds ? sums + residuals : 0};
  }
  MemoryEstimate on_host(bool gpu_adds) const {
    return {.parameters = tables.parameters,
            .optimiser = tables.optimiser,
            .references = references - spared_references,
            .buffers = buffers - (gpu_adds ? sums : 0),
            .program = program};
  }
};
std::string to_text(const MemoryEstimate& memory);

struct MemoryRequest {
  const RunConfig& config;
  const ModelSpec& spec;
  const PipelineDecisions& decisions;
  GridPlan grid = {};
  std::uint64_t samples = 0;  // in the training data
};
// By place in the pipeline: replicas and the ranks of a grid hold as much. Without the program.
std::vector<MemoryEstimate> rank_memory(const MemoryRequest& request);

// Six for every multiply-add of a forward pass: two operations forward, four backward.
// Recomputation does not count.
double model_flops(const ModelSpec& spec, std::int64_t samples);

}  // namespace laconic
