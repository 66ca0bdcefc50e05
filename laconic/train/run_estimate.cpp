#include "laconic/train/run_estimate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "laconic/architecture/grid_memory.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/grid_policy.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/train/gemm_rate.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {

namespace {

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Ranks that are threads share a process, which is there once.
void add_host(const RankResources& facts, const MemoryEstimate& memory,
              std::set<std::pair<std::string, std::int64_t>>& seen,
              std::vector<HostEstimate>& hosts) {
  const std::string name = facts.host.data();
  auto found = std::ranges::find(hosts, name, &HostEstimate::name);
  if (found == hosts.end())
    found =
        hosts.insert(hosts.end(), {.name = name, .has = static_cast<double>(facts.memory_bytes)});
  ++found->ranks;
  const double program = found->needed.program;
  found->needed += memory;
  if (!seen.insert({name, facts.process}).second) found->needed.program = program;
}

// Ranks that share a GPU need its memory together. What is free differs from rank to rank, as the
// others begin to use it: the least counts.
void add_gpu(std::size_t rank, const std::vector<RankResources>& ranks,
             const MemoryEstimate& memory, std::vector<std::size_t>& first,
             std::vector<GpuEstimate>& gpus) {
  const RankResources& mine = ranks[rank];
  std::size_t place = 0;
  while (place < first.size() && !mine.shares_gpu_with(ranks[first[place]])) ++place;
  const auto free = static_cast<double>(mine.gpu_free_bytes);
  if (place == first.size()) {
    first.push_back(rank);
    gpus.push_back({.host = mine.host.data(),
                    .index = mine.gpu,
                    .has = free,
                    .whole = static_cast<double>(mine.gpu_total_bytes)});
  }
  GpuEstimate& gpu = gpus[place];
  ++gpu.ranks;
  gpu.needed += memory;
  gpu.has = std::min(gpu.has, free);
}

// Seconds of each block on a rank of the grid.
std::vector<BlockTimes> block_times(const EstimateRequest& r, const GridMachine& machine) {
  const GridLoad load{.samples = r.config.microbatch_size(),
                      .has_smoothing = r.config.task.label_smoothing > 0};
  std::vector<BlockTimes> times;
  for (const GridBlockTime& block :
       grid_times(r.spec, r.grid, load, machine, grid_bytes_of(r.config, r.spec),
                  {.recomputes = r.config.model.recompute && !is_trivial(r.grid),
                  .prefetches = r.config.tensor.prefetch}))
    times.push_back({.forward = block.forward.total(), .backward = block.backward.total()});
  return times;
}

double seconds_of_step(const EstimateRequest& r, double flops_per_second, bool& has_network) {
  LinkFacts link = r.link;
  if (link.bytes_per_second <= 0) link.bytes_per_second = link.slowest_bytes_per_second;
  has_network = link.bytes_per_second > 0;
  const GridMachine machine{
      .flops_per_second = flops_per_second / static_cast<double>(r.ranks.size()),
      .bytes_per_second = link.bytes_per_second,
      .latency = link.latency};
  Costs costs = costs_of(r.config, r.spec, r.decisions, block_times(r, machine), link);
  if (r.config.local.steps > 0)
    for (StageCost& stage : costs.stages)
      stage.reduction /= static_cast<double>(r.config.local.steps);
  double beside = 0;  // what travels while a step computes, and ends with it at best
  if (r.config.dp_gradient.late > 0)
    for (StageCost& stage : costs.stages)
      beside = std::max(beside, std::exchange(stage.reduction, 0));
  return std::max(beside, estimate(plan_of(r.config, r.decisions).schedule, costs).makespan);
}

}  // namespace

RankResources measure_rank(const at::TensorOptions& options, std::int64_t memory_bytes) {
  RankResources facts{.process = ::getpid(), .memory_bytes = memory_bytes};
  const std::string name = host_name();
  std::memcpy(facts.host.data(), name.data(), std::min(name.size(), facts.host.size() - 1));
  if (options.device().is_cuda()) {
    const GpuFacts gpu = examine_gpu(options.device().index());
    facts.gpu = gpu.index;
    std::memcpy(facts.gpu_bus.data(), gpu.bus.data(),
                std::min(gpu.bus.size(), facts.gpu_bus.size() - 1));
    facts.gpu_total_bytes = gpu.total_bytes;
    facts.gpu_free_bytes = gpu.free_bytes;
    facts.has_gpu_codecs = sums_on_device({}, Dtype::f32, 2);  // raw ones, if any
  }
  facts.flops_per_second = measure_gemm_rate(options);
  facts.resident_bytes = resident_bytes();
  return facts;
}

double SampleFlops::of(std::int64_t tokens, std::int64_t target_tokens) {
  const auto [place, is_new] = known_.try_emplace({tokens, target_tokens}, 0);
  if (is_new) place->second = model_flops(model_spec(family_, tokens, target_tokens), 1);
  return place->second;
}

RunEstimate estimate_run(const EstimateRequest& r) {
  RunEstimate estimate{.step_flops = model_flops(r.spec, r.config.train.batch)};
  const Mesh mesh = mesh_of(r.config);
  const std::vector<MemoryEstimate> by_place =
      rank_memory({r.config, r.spec, r.decisions, r.grid, r.samples});
  std::set<std::pair<std::string, std::int64_t>> seen;
  std::vector<std::size_t> first_of_gpu;
  for (std::size_t rank = 0; rank < r.ranks.size(); ++rank) {
    const int pp = coord_of(mesh, static_cast<Rank>(rank)).pp;
    MemoryEstimate memory = by_place[static_cast<std::size_t>(pp)];
    memory.program = static_cast<double>(r.ranks[rank].resident_bytes);
    estimate.flops_per_second += r.ranks[rank].flops_per_second;
    estimate.ranks.push_back(memory);
    const bool has_gpu = r.ranks[rank].gpu >= 0;
    const bool gpu_adds = has_gpu && r.ranks[rank].has_gpu_codecs;
    if (has_gpu) add_gpu(rank, r.ranks, memory.on_gpu(gpu_adds), first_of_gpu, estimate.gpus);
    add_host(r.ranks[rank], has_gpu ? memory.on_host(gpu_adds) : memory, seen, estimate.hosts);
  }
  if (const auto told = static_cast<double>(r.config.run.memory); told > 0) {
    for (GpuEstimate& gpu : estimate.gpus) gpu.has = told, gpu.whole = 0;
    if (estimate.gpus.empty())
      for (HostEstimate& host : estimate.hosts) host.has = told;
  }
  estimate.step_seconds = seconds_of_step(r, estimate.flops_per_second, estimate.has_network);
  return estimate;
}

}  // namespace laconic
