#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/text.hpp"
#include "laconic/train/run_estimate.hpp"

namespace laconic {

namespace {

std::string ranks_text(int ranks) {
  return ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks);
}

std::string name_of_gpu(const GpuEstimate& gpu) {
  return fmt::format("cuda:{} of {}", gpu.index, gpu.host);
}

// Which settings help, or that they do not, and what else does.
std::string help_text(const MemoryAdvice* advice, bool is_gpu) {
  const std::string others =
      is_gpu ? "a shorter precision or fewer ranks on a GPU" : "more machines";
  if (advice != nullptr && advice->ways.empty())
    return advice->has_tried_microbatches
               ? fmt::format(
                     "Neither a smaller train.microbatch nor model.recompute = true is "
                     "enough: {} help",
                     others)
               : fmt::format(
                     "model.recompute = true is not enough: a smaller train.microbatch "
                     "may be, and {} help",
                     others);
  return fmt::format("A smaller train.microbatch, model.recompute = true{} {} help{}",
                     is_gpu ? "," : " or", others,
                     advice == nullptr ? "" : " (" + join(advice->ways, "; ") + ")");
}

// The most that any machine or GPU lacks; nothing is lacking when it is not above 0.
double lack_of(const RunEstimate& estimate) {
  double most = -1;
  const auto include = [&](const auto& place) {
    if (place.has > 0) most = std::max(most, place.needed.total() - place.has);
  };
  for (const HostEstimate& host : estimate.hosts) include(host);
  for (const GpuEstimate& gpu : estimate.gpus) include(gpu);
  return most;
}

// The one that comes nearest to what it has.
template <class Place>
const Place& tightest(const std::vector<Place>& places) {
  return *std::ranges::max_element(places, {}, [](const Place& place) {
    return place.has > 0 ? place.needed.total() / place.has : 0;
  });
}

// What a rank needs is all in one kind of memory.
std::string memory_of_hosts(const RunEstimate& e) {
  const auto largest = std::ranges::max_element(e.ranks, {}, &MemoryEstimate::total);
  std::string memory = fmt::format("memory: about {}", human_bytes(largest->total()));
  if (e.ranks.size() > 1) memory += fmt::format(" on rank {}", largest - e.ranks.begin());
  memory += fmt::format(" ({})", to_text(*largest));
  const HostEstimate& fullest = tightest(e.hosts);
  if (e.ranks.size() > 1)
    memory += fmt::format("; {} for {} ranks on {}", human_bytes(fullest.needed.total()),
                          fullest.ranks, fullest.name);
  if (fullest.has > 0)
    memory += fmt::format("{} {}", e.ranks.size() > 1 ? ", which has" : "; the machine has",
                          human_bytes(fullest.has));
  return memory;
}

// What ranks need on GPUs, and what they need beside.
std::string memory_of_gpus(const RunEstimate& e) {
  const auto part = [](const std::string& where, int ranks, const MemoryEstimate& needed,
                       const std::string& has) {
    return fmt::format("about {} on {} for {} ({}){}", human_bytes(needed.total()), where,
                       ranks_text(ranks), to_text(needed), has);
  };
  const GpuEstimate& gpu = tightest(e.gpus);
  const HostEstimate& host = tightest(e.hosts);
  return fmt::format(
      "memory: {}; {}",
      part(name_of_gpu(gpu), gpu.ranks, gpu.needed,
           gpu.has > 0 ? fmt::format(", which has {} free", human_bytes(gpu.has)) : ""),
      part(host.name, host.ranks, host.needed,
           host.has > 0 ? fmt::format(", which has {}", human_bytes(host.has)) : ""));
}

}  // namespace

double largest_need(const RunEstimate& estimate) {
  double most = 0;
  if (estimate.gpus.empty())
    for (const HostEstimate& host : estimate.hosts) most = std::max(most, host.needed.total());
  for (const GpuEstimate& gpu : estimate.gpus) most = std::max(most, gpu.needed.total());
  return most;
}

Problems check_memory(const RunEstimate& estimate, const MemoryAdvice* advice) {
  Problems problems;
  const auto refuse = [&](const MemoryEstimate& needed, const std::string& where, int ranks,
                          const std::string& has, bool is_gpu) {
    problems.push_back(
        {"memory", fmt::format("this run needs about {} on {} for {}: {}; {}. {}; run.memory "
                               "overrides what it has",
                               human_bytes(needed.total()), where, ranks_text(ranks),
                               to_text(needed), has, help_text(advice, is_gpu))});
  };
  for (const HostEstimate& host : estimate.hosts)
    if (host.has > 0 && host.needed.total() > host.has)
      refuse(host.needed, host.name, host.ranks, "the machine has " + human_bytes(host.has), false);
  for (const GpuEstimate& gpu : estimate.gpus)
    if (gpu.has > 0 && gpu.needed.total() > gpu.has)
      refuse(gpu.needed, name_of_gpu(gpu), gpu.ranks,
             fmt::format("free there are {}{}", human_bytes(gpu.has),
                         gpu.whole > 0 ? " of " + human_bytes(gpu.whole) : ""),
             true);
  return problems;
}

MemoryAdvice what_would_help(const EstimateRequest& request) {
  // In a pipeline other microbatches are another schedule, which is not decided here.
  MemoryAdvice advice{.has_tried_microbatches = request.config.mesh.pp == 1};
  const auto try_with = [&](std::int64_t microbatch, bool recomputes) {
    RunConfig config = request.config;
    config.train.microbatch = microbatch;
    config.model.recompute = recomputes;
    const RunEstimate estimate = estimate_run({.config = config,
                                               .spec = request.spec,
                                               .decisions = request.decisions,
                                               .link = request.link,
                                               .samples = request.samples,
                                               .ranks = request.ranks});
    if (lack_of(estimate) > 0) return false;
    std::vector<std::string> changes;
    if (microbatch != request.config.microbatch_size())
      changes.push_back(fmt::format("train.microbatch = {}", microbatch));
    if (recomputes != request.config.model.recompute)
      changes.emplace_back("model.recompute = true");
    advice.ways.push_back(
        fmt::format("{} needs {}", join(changes, " with "), human_bytes(largest_need(estimate))));
    return true;
  };
  const std::int64_t now = request.config.microbatch_size(), batch = request.config.local_batch();
  for (const bool recomputes : {request.config.model.recompute, true}) {
    if (recomputes != request.config.model.recompute && try_with(now, recomputes)) break;
    std::int64_t microbatch = advice.has_tried_microbatches ? now - 1 : 0;
    for (; microbatch > 0; --microbatch)
      if (batch % microbatch == 0 && try_with(microbatch, recomputes)) break;
    if (request.config.model.recompute) break;
  }
  return advice;
}

std::vector<std::string> describe(const RunEstimate& e, const RunConfig& config) {
  const double left = e.step_seconds * static_cast<double>(config.train.steps);
  return {
      e.gpus.empty() ? memory_of_hosts(e) : memory_of_gpus(e),
      fmt::format("time: {}FLOP a step; at {}FLOP/s, as measured in products{}, a step takes {} "
                  "at best, {} steps {}",
                  human_count(e.step_flops), human_count(e.flops_per_second),
                  e.has_network ? ", and what the network carries" : "",
                  human_seconds(e.step_seconds), config.train.steps, human_seconds(left))};
}

}  // namespace laconic
