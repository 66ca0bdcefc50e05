#include "laconic/policy/schedule_trials.hpp"

#include <algorithm>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

RunConfig config_with(RunConfig config, ScheduleKind kind, std::int64_t size) {
  config.pipeline.schedule = name_of(kind);
  config.pipeline.decided_microbatch = size;
  return config;
}

TriedSchedule try_schedule(const RunConfig& config, const ModelSpec& spec, const LinkFacts& link,
                           const std::vector<BlockTimes>& times, const JudgeSchedule& judge) {
  PipelineDecisions decisions = decide_pipeline(config, spec, link, [&] { return times; });
  const Schedule lowered = plan_of(config, decisions).schedule;
  Costs costs = costs_of(config, spec, decisions, times, link);
  costs.wiring = Wiring::switched;  // nearest to what is measured
  ScheduleCandidate candidate = judge(config, decisions, estimate(lowered, costs));
  candidate.kind = parse_schedule_kind(config.pipeline.schedule);
  candidate.microbatches = lowered.shape.microbatches;
  return {candidate, std::move(decisions)};
}

}  // namespace

LinkFacts rates_of(LinkFacts link) {
  if (link.bytes_per_second <= 0) link.bytes_per_second = link.slowest_bytes_per_second;
  return link;
}

std::vector<TriedSchedule> try_schedules(const RunConfig& config, const ModelSpec& spec,
                                         const LinkFacts& link, const TimesOfSize& times_of,
                                         const JudgeSchedule& judge) {
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
      tried.push_back(try_schedule(asked, spec, rates_of(link), times, judge));
      tried.back().decisions.kind = name_of(kind);
      tried.back().decisions.microbatch = size;
    }
  }
  LACONIC_ASSERT(!tried.empty(), "the checks let something through that cannot be");
  return tried;
}

const TriedSchedule& schedule_to_take(const std::vector<TriedSchedule>& tried) {
  std::vector<ScheduleCandidate> candidates;
  for (const TriedSchedule& t : tried) candidates.push_back(t.candidate);
  const auto least = std::ranges::min_element(candidates, {}, &ScheduleCandidate::held);
  return tried[choose(candidates).value_or(static_cast<std::size_t>(least - candidates.begin()))];
}

}  // namespace laconic
