#include "laconic/simulate/run_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/index.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/rank_memory.hpp"
#include "laconic/policy/schedule_trials.hpp"
#include "laconic/simulate/row_load.hpp"
#include "laconic/simulate/step_program.hpp"
#include "laconic/simulate/stretch.hpp"

namespace laconic {

namespace {

std::vector<Seat> seats_by_rank(const SimulationRequest& r) {
  const std::vector<Seat> seats = seats_of(r.hosts);
  std::vector<Seat> by_rank;
  for (Rank rank = 0; rank < size(r.mesh); ++rank)
    by_rank.push_back(seats[index(r.seating.empty() ? rank : r.seating[index(rank)])]);
  return by_rank;
}

// By step, when its last rank has ended it.
std::vector<double> ends_of_steps(const RunProgram& program, const RunTimes& times, int steps) {
  std::vector<double> ends(index(steps), 0);
  for (std::size_t s = 0; s < program.spans.size(); ++s)
    if (program.spans[s].kind == 'S') {
      double& end = ends[index(program.spans[s].microbatch)];
      end = std::max(end, times.spans[s].end);
    }
  return ends;
}

// What several stretches come to, each so many times.
struct Totals {
  double seconds = 0;
  std::vector<RankSpent> ranks;
  std::vector<double> link_bytes;
  std::array<double, kTrafficClasses> messages = {}, bytes = {};

  void add(const RunProgram& program, const RunTimes& times_of_it, double its_seconds,
           double times);
};

void add_times(RankSpent& sum, const RankSpent& one, double times) {
  for (std::size_t i = 0; i < one.work.size(); ++i) sum.work.at(i) += times * one.work.at(i);
  for (std::size_t i = 0; i < one.exposed.size(); ++i)
    sum.exposed.at(i) += times * one.exposed.at(i);
  sum.bubble += times * one.bubble;
  sum.idle += times * one.idle;
}

void Totals::add(const RunProgram& program, const RunTimes& times_of_it, double its_seconds,
                 double times) {
  seconds += times * its_seconds;
  ranks.resize(times_of_it.ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) add_times(ranks[r], times_of_it.ranks[r], times);
  link_bytes.resize(times_of_it.link_bytes.size());
  for (std::size_t l = 0; l < link_bytes.size(); ++l)
    link_bytes[l] += times * times_of_it.link_bytes[l];
  for (const ProgramMessage& message : program.messages) {
    messages.at(static_cast<std::size_t>(message.traffic)) += times * message.flows;
    bytes.at(static_cast<std::size_t>(message.traffic)) += times * message.bytes;
  }
}

// Of `steps` steps; what reports divide by is the number of those in the program.
void put(const Totals& totals, double steps, RunSimulation& simulation) {
  const double share = simulation.steps / steps;
  simulation.step_seconds = totals.seconds / steps;
  for (std::size_t r = 0; r < totals.ranks.size(); ++r) {
    simulation.times.ranks[r] = {};
    add_times(simulation.times.ranks[r], totals.ranks[r], share);
  }
  for (std::size_t l = 0; l < totals.link_bytes.size(); ++l)
    simulation.times.link_bytes[l] = share * totals.link_bytes[l];
  for (std::size_t t = 0; t < totals.messages.size(); ++t)
    simulation.sent.at(t) = {
        static_cast<std::uint64_t>(std::llround(totals.messages.at(t) / steps)),
        static_cast<std::uint64_t>(std::llround(totals.bytes.at(t) / steps))};
}

// Whether a step leaves something to the next.
bool reaches_further(const SimulationRequest& r) {
  if (r.config.train.update == UpdateBy::block) return true;
  for (const RowLoad& load : row_loads(r.config, r.spec, r.rows_read))
    if (r.config.embedding_rows.early || splits_on(r.config, r.spec, load, r.hosts)) return true;
  return false;
}

}  // namespace

Problems check(const SimulationRequest& r) {
  Problems problems = check(r.hosts);
  if (!problems.empty()) return problems;
  const int ranks = size(r.mesh), seats = rank_count(r.hosts);
  if (ranks > seats)
    problems.push_back({"mesh", fmt::format("{} asks for {} ranks, and the hosts have {}",
                                            to_text(r.mesh), ranks, seats)});
  if (!r.seating.empty() && r.seating.size() != index(ranks))
    problems.push_back({"seating", fmt::format("{} seats for {} ranks", r.seating.size(), ranks)});
  for (const int seat : r.seating)
    if (seat < 0 || seat >= seats)
      problems.push_back({"seating", fmt::format("seat {} of {}", seat, seats)});
  if (!r.blocks.empty() && r.blocks.size() != r.spec.blocks.size())
    problems.push_back(
        {"blocks", fmt::format("{} times for {} blocks", r.blocks.size(), r.spec.blocks.size())});
  if (r.config.dp_gradient.algorithm == AllReduceKind::native)
    problems.push_back({"dp.gradient.algorithm",
                        "\"native\" is the transport's own sum, of which nobody knows the "
                        "messages: use \"auto\""});
  for (const std::size_t p : row_tables(r.config, r.spec))
    if (r.rows_read > static_cast<double>(r.spec.parameters[p].sizes[0]))
      problems.push_back(
          {"--rows-read", fmt::format("{} of the {} rows of {}", r.rows_read,
                                      r.spec.parameters[p].sizes[0], r.spec.parameters[p].name)});
  if (r.rows_read < 0)
    problems.push_back({"--rows-read", fmt::format("{} is below 0", r.rows_read)});
  return problems;
}

RunProgram program_of(const SimulationRequest& request, const RankClasses& classes,
                      const std::vector<LocalStep>& steps) {
  const std::vector<Seat> seats = seats_by_rank(request);
  ProgramBuilder builder(request.hosts, seats, classes, request.config.run.precision,
                         request.bounds);
  builder.program().segment_bytes = static_cast<double>(request.config.network.segment);
  add_steps(builder, request, steps);
  return std::move(builder.program());
}

RunProgram program_of(const SimulationRequest& request, const RankClasses& classes, int steps) {
  return program_of(request, classes,
                    std::vector<LocalStep>(index(steps), LocalStep{.is_together = true}));
}

RunSimulation simulate(const SimulationRequest& request, const ProgramChange& change) {
  RunSimulation simulation;
  simulation.classes =
      classes_of(request.mesh, request.hosts, seats_by_rank(request), request.folding);
  const Stretches stretches = stretches_of(request.config.local, reaches_further(request));
  Totals totals;
  for (std::size_t i = 0; i < stretches.all.size(); ++i) {
    const Stretch& stretch = stretches.all[i];
    const int steps = static_cast<int>(stretch.steps.size());
    RunProgram program = program_of(request, simulation.classes, stretch.steps);
    if (change) change(program, simulation.classes);
    RunTimes times = simulate(program);
    const std::vector<double> ends = ends_of_steps(program, times, steps);
    // Steps that overlap take from the end of one to that of the next.
    const double seconds = request.config.local.steps > 0 || steps == 1
                               ? ends.back()
                               : (ends.back() - ends.front()) / (steps - 1) * steps;
    totals.add(program, times, seconds, stretch.times);
    if (i > 0) continue;
    simulation.steps = steps;
    simulation.program = std::move(program);
    simulation.times = std::move(times);
  }
  put(totals, stretches.counted(), simulation);
  return simulation;
}

namespace {

LinkFacts slowest_link(const Hosts& hosts) {
  LinkFacts link;
  for (const HostGroup& group : hosts.groups) {
    const auto slower = [&](const Link& one) {
      const double rate = kTcpShare * one.bits_per_second / 8;
      if (link.bytes_per_second == 0 || rate < link.bytes_per_second) link.bytes_per_second = rate;
      link.latency = std::max(link.latency, 2 * one.latency_seconds);
    };
    slower(group.card);
    if (group.uplink) slower(*group.uplink);
  }
  link.slowest_bytes_per_second = link.bytes_per_second;
  return link;
}

// A rank of the first group computes so many multiply-adds in a second.
std::vector<BlockTimes> times_at(double rate, double pass_samples, const ModelSpec& spec,
                                 std::int64_t microbatch) {
  std::vector<BlockTimes> times;
  for (const BlockSpec& block : spec.blocks) {
    const double work = block.multiply_adds * (static_cast<double>(microbatch) + pass_samples);
    times.push_back({rate > 0 ? work / rate : 0, rate > 0 ? 2 * work / rate : 0});
  }
  return times;
}

// Ranks by group, whose cores they may share and whose memory they have.
ScheduleCandidate judge(const Hosts& hosts, const ModelSpec& spec, const RunConfig& config,
                        const PipelineDecisions& decisions, const Timing& timing) {
  const Mesh mesh = mesh_of(config);
  const std::vector<Seat> seats = seats_of(hosts);
  const std::vector<MemoryEstimate> memory = rank_memory({config, spec, decisions});
  ScheduleCandidate candidate{.seconds = timing.makespan};
  for (std::size_t g = 0; g < hosts.groups.size(); ++g) {
    const HostGroup& group = hosts.groups[g];
    MachineWork work;
    double most = 0, all = 0;
    const Rank seated = std::min(size(mesh), static_cast<int>(seats.size()));
    for (Rank rank = 0; rank < seated; ++rank) {
      if (seats[index(rank)].group != static_cast<int>(g)) continue;
      const std::size_t place = index(coord_of(mesh, rank).pp);
      work.longest = std::max(work.longest, timing.busy[place]);
      work.all += timing.busy[place];
      most = std::max(most, memory[place].total());
      all += memory[place].total();
    }
    candidate.seconds =
        std::max(candidate.seconds, shared_seconds(timing.makespan, work, group.cores));
    const double has = group.device.is_gpu ? group.device.memory_bytes : group.memory_bytes;
    const double held = group.cores > 0       ? all
                        : group.device.is_gpu ? most
                                              : most * group.ranks_per_host;
    candidate.held = std::max(candidate.held, held);
    candidate.fits = candidate.fits && (has == 0 || held <= has);
  }
  return candidate;
}

// Cores count by the work of all ranks; here a rank has one for itself.
PipelineDecisions choose_for(const RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                             const std::vector<BlockTimes>& blocks) {
  const HostDevice& device = hosts.groups.front().device;
  const auto precision = static_cast<std::size_t>(config.run.precision);
  const auto times_of = [&](std::int64_t size) {
    if (blocks.empty())
      return times_at(device.multiply_adds_per_second.at(precision),
                      device.pass_samples.at(precision), spec, size);
    std::vector<BlockTimes> times = blocks;
    const double share = static_cast<double>(size) / static_cast<double>(config.microbatch_size());
    for (BlockTimes& t : times) t = {share * t.forward, share * t.backward};
    return times;
  };
  const std::vector<TriedSchedule> tried = try_schedules(
      config, spec, slowest_link(hosts), times_of,
      [&](const RunConfig& asked, const PipelineDecisions& decisions, const Timing& timing) {
        return judge(hosts, spec, asked, decisions, timing);
      });
  return schedule_to_take(tried).decisions;
}

}  // namespace

PipelineDecisions decide_for(RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                             const std::vector<BlockTimes>& blocks) {
  choose_lanes(config.run.device.is_cuda(), config);
  if (config.pipeline.is_automatic() && config.mesh.pp > 1) {
    PipelineDecisions decisions = choose_for(config, spec, hosts, blocks);
    config.pipeline.decided_microbatch = decisions.microbatch;
    return decisions;
  }
  const HostGroup& first = hosts.groups.front();
  return decide_pipeline(config, spec, slowest_link(hosts), [&] {
    return !blocks.empty()
               ? blocks
               : times_at(
                     multiply_adds_of(first, config.run.precision),
                     first.device.pass_samples.at(static_cast<std::size_t>(config.run.precision)),
                     spec, config.microbatch_size());
  });
}

}  // namespace laconic
