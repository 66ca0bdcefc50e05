// train/run_estimate.hpp — what a run will need, before its first step: memory, and time at best.
//
// Pure, but for measure_rank(). Memory is what is known to be held at once when it is most;
// allocators take some more. Time is that of the products at the rate that was measured,
// in the order of the schedule, and of what travels at the rates of the pre-flight: a
// step takes longer, and MFU says by how much.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/policy/rank_memory.hpp"
#include "laconic/train/pipeline_plan.hpp"

namespace laconic {

// What a rank tells of itself.
struct RankResources {
  std::array<char, 64> host = {};
  std::int64_t process = 0;
  std::int64_t memory_bytes = 0;  // of its machine or container; 0: unknown
  std::int64_t resident_bytes = 0;
  double flops_per_second = 0;  // of a product of matrices

  int gpu = -1;                       // -1: it computes on the CPU
  std::array<char, 24> gpu_bus = {};  // which it is on its machine
  std::int64_t gpu_total_bytes = 0;   // 0: unknown
  std::int64_t gpu_free_bytes = 0;
  bool has_gpu_codecs = false;  // sums may be made there
  bool shares_gpu_with(const RankResources& other) const {
    return gpu >= 0 && gpu == other.gpu && gpu_bus == other.gpu_bus && host == other.host;
  }
};
RankResources measure_rank(const at::TensorOptions& options, std::int64_t memory_bytes);

struct HostEstimate {
  std::string name;
  int ranks = 0;
  MemoryEstimate needed;  // of all its ranks
  double has = 0;         // bytes; 0: unknown
};

struct GpuEstimate {
  std::string host;
  int index = 0;
  int ranks = 0;          // that share it
  MemoryEstimate needed;  // of all of them, there
  double has = 0;         // bytes that were free; 0: unknown
  double whole = 0;       // bytes that it has in all; 0: unknown, or run.memory counts
};

struct RunEstimate {
  std::vector<MemoryEstimate> ranks;
  std::vector<HostEstimate> hosts;
  std::vector<GpuEstimate> gpus;
  double step_flops = 0;        // of the model: forward and backward, all ranks
  double flops_per_second = 0;  // of all ranks together, in products
  double step_seconds = 0;      // at best
  bool has_network = false;     // rates are known, and in the seconds
};

// The same of one sample, by its lengths (model_spec()), each of which is computed once.
class SampleFlops {
 public:
  explicit SampleFlops(Family family) : family_(std::move(family)) {}
  double of(std::int64_t tokens, std::int64_t target_tokens);

 private:
  Family family_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> known_;
};

struct EstimateRequest {
  const RunConfig& config;
  const ModelSpec& spec;
  const PipelineDecisions& decisions;
  GridPlan grid = {};
  LinkFacts link;
  std::uint64_t samples = 0;  // in the training data
  std::vector<RankResources> ranks;
};
RunEstimate estimate_run(const EstimateRequest& request);

// What was tried for a run that does not fit.
struct MemoryAdvice {
  // Smaller microbatches, recomputation, or both, that would fit, and what they need:
  // "train.microbatch = 2 needs 3.1 GB". Empty when none of them is enough.
  std::vector<std::string> ways;
  bool has_tried_microbatches = true;  // false in a pipeline: they are another schedule
};
MemoryAdvice what_would_help(const EstimateRequest& request);
// Of the machine, or the GPU, that needs most.
double largest_need(const RunEstimate& estimate);
// Every machine and every GPU that has too little memory, with what would help.
Problems check_memory(const RunEstimate& estimate, const MemoryAdvice* advice = nullptr);

// For people: one line of memory, each kind beside what there is of it, and one of time.
std::vector<std::string> describe(const RunEstimate& estimate, const RunConfig& config);

}  // namespace laconic
