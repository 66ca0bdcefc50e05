#include "laconic/train/schedule_choice.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/schedule/estimate.hpp"

namespace laconic {

namespace {

// A candidate with all that would follow from it.
struct TriedSchedule {
  ScheduleCandidate candidate;
  PipelineDecisions decisions;
};

RunConfig config_with(RunConfig config, ScheduleKind kind, std::int64_t size) {
  config.pipeline.schedule = name_of(kind);
  config.pipeline.decided_microbatch = size;
  return config;
}

// The rate that messages are timed by: that of neighbours, or any that is known.
LinkFacts rates_of(LinkFacts link) {
  if (link.bytes_per_second <= 0) link.bytes_per_second = link.slowest_bytes_per_second;
  return link;
}

// Of the machine whose ranks compute most in all; by the mesh a rank has the work of its place in
// the pipeline.
MachineWork busiest_machine(const Timing& timing, const RunConfig& config, const RunFacts& facts) {
  const Mesh mesh = mesh_of(config);
  std::map<std::string, MachineWork> machines;
  for (std::size_t rank = 0; rank < facts.ranks.size(); ++rank) {
    const double busy =
        timing.busy[static_cast<std::size_t>(coord_of(mesh, static_cast<Rank>(rank)).pp)];
    MachineWork& work = machines[facts.ranks[rank].host.data()];
    work.longest = std::max(work.longest, busy);
    work.all += busy;
  }
  MachineWork most;
  for (const auto& [host, work] : machines)
    if (work.all > most.all) most = work;
  return most;
}

TriedSchedule try_schedule(const RunConfig& config, const RunFacts& facts,
                           const std::vector<BlockTimes>& times) {
  const LinkFacts link = rates_of(facts.link);
  PipelineDecisions decisions = decide_pipeline(config, facts.spec, link, [&] { return times; });
  const Schedule lowered = plan_of(config, decisions).schedule;
  Costs costs = costs_of(config, facts.spec, decisions, times, link);
  costs.wiring = Wiring::switched;  // nearest to what is measured
  const Timing timing = estimate(lowered, costs);
  const RunEstimate run = estimate_run(request_of(config, decisions, facts));
  const int at_once = facts.processors / std::max(1, at::get_num_threads());
  return {{.kind = parse_schedule_kind(config.pipeline.schedule),
           .microbatches = lowered.shape.microbatches,
           .seconds = shared_seconds(timing.makespan, busiest_machine(timing, config, facts),
                                     facts.processors > 0 ? std::max(1, at_once) : 0),
           .held = largest_need(run),
           .fits = check_memory(run).empty()},
          std::move(decisions)};
}

std::string why(const std::vector<TriedSchedule>& tried, const TriedSchedule& taken,
                const LinkFacts& link) {
  const auto slowest = std::ranges::max_element(
      tried, {}, [](const TriedSchedule& t) { return t.candidate.seconds; });
  const auto too_large =
      std::ranges::count_if(tried, [](const TriedSchedule& t) { return !t.candidate.fits; });
  const auto described = [](const TriedSchedule& t) {
    return fmt::format("{} of {}, {} a step", to_text(t.candidate), t.decisions.microbatch,
                       human_seconds(t.candidate.seconds));
  };
  std::string text = fmt::format(
      "auto tried {} and takes {} by estimate at {}", tried.size(), described(taken),
      link.bytes_per_second > 0 ? fmt::format("{:.3g} Mbit/s", 8e-6 * link.bytes_per_second)
                                : std::string("no known rate, as if messages took no time"));
  if (&*slowest != &taken) text += fmt::format("; slowest {}", described(*slowest));
  if (too_large > 0) text += fmt::format("; {} would not fit in memory", too_large);
  return text;
}

}  // namespace

EstimateRequest request_of(const RunConfig& decided, const PipelineDecisions& decisions,
                           const RunFacts& facts) {
  return {.config = decided,
          .spec = facts.spec,
          .decisions = decisions,
          .grid = facts.grid,
          .link = facts.link,
          .samples = facts.samples,
          .ranks = facts.ranks};
}

PipelineDecisions choose_schedule(const RunConfig& config, const RunFacts& facts,
                                  const TimesOfSize& times_of) {
  const std::int64_t samples = config.local_batch(), pp = config.mesh.pp;
  // Fewer microbatches than ranks leave some of them idle in any order.
  const std::int64_t most = config.train.microbatch > 0 ? config.train.microbatch
                                                        : std::max<std::int64_t>(samples / pp, 1);
  std::vector<TriedSchedule> tried;
  for (const std::int64_t size : microbatch_sizes(samples, most)) {
    const std::vector<BlockTimes> times = times_of(size);
    for (const ScheduleKind kind : kinds_for_chunks(static_cast<int>(config.pipeline.chunks))) {
      const RunConfig asked = config_with(config, kind, size);
      if (!check_pipeline(asked).empty()) continue;  // interleaved, of a number that does not fit
      tried.push_back(try_schedule(asked, facts, times));
      tried.back().decisions.kind = name_of(kind);
      tried.back().decisions.microbatch = size;
    }
  }
  LACONIC_ASSERT(!tried.empty(), "the checks let something through that cannot be");
  std::vector<ScheduleCandidate> candidates;
  for (const TriedSchedule& t : tried) candidates.push_back(t.candidate);
  const auto least = std::ranges::min_element(candidates, {}, &ScheduleCandidate::held);
  TriedSchedule& taken =
      tried[choose(candidates).value_or(static_cast<std::size_t>(least - candidates.begin()))];
  taken.decisions.why = why(tried, taken, rates_of(facts.link));
  return taken.decisions;
}

PipelineDecisions choose_schedule(const RunConfig& config, const Family& family,
                                  const RunFacts& facts, const at::TensorOptions& options) {
  return choose_schedule(config, facts, [&](std::int64_t size) {
    RunConfig sized = config;
    sized.pipeline.decided_microbatch = size;
    return measure_blocks(sized, family, options);
  });
}

int shared_processors(const std::vector<RankResources>& ranks) {
  const bool has_gpu =
      std::ranges::any_of(ranks, [](const RankResources& r) { return r.gpu >= 0; });
  return has_gpu ? 0 : static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace laconic
