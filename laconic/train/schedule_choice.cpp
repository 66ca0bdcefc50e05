#include "laconic/train/schedule_choice.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

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

ScheduleCandidate judge(const RunConfig& config, const RunFacts& facts,
                        const PipelineDecisions& decisions, const Timing& timing) {
  const RunEstimate run = estimate_run(request_of(config, decisions, facts));
  const int at_once = facts.processors / std::max(1, at::get_num_threads());
  return {.seconds = shared_seconds(timing.makespan, busiest_machine(timing, config, facts),
                                    facts.processors > 0 ? std::max(1, at_once) : 0),
          .held = largest_need(run),
          .fits = check_memory(run).empty()};
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
  const std::vector<TriedSchedule> tried =
      try_schedules(config, facts.spec, facts.link, times_of,
                    [&](const RunConfig& asked, const PipelineDecisions& decisions,
                        const Timing& timing) { return judge(asked, facts, decisions, timing); });
  const TriedSchedule& taken = schedule_to_take(tried);
  PipelineDecisions decisions = taken.decisions;
  decisions.why = why(tried, taken, rates_of(facts.link));
  return decisions;
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
