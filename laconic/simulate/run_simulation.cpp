#include "laconic/simulate/run_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/index.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/simulate/step_program.hpp"

namespace laconic {

namespace {

constexpr int kOverlappingSteps = 3;

std::vector<Seat> seats_by_rank(const SimulationRequest& r) {
  const std::vector<Seat> seats = seats_of(r.hosts);
  std::vector<Seat> by_rank;
  for (Rank rank = 0; rank < size(mesh_of(r.config)); ++rank)
    by_rank.push_back(seats[index(r.seating.empty() ? rank : r.seating[index(rank)])]);
  return by_rank;
}

// From the end of the first step to that of the last; of one step all of it.
double seconds_of_step(const RunSimulation& simulation) {
  std::vector<double> ends(index(simulation.steps), 0);
  for (std::size_t s = 0; s < simulation.program.spans.size(); ++s)
    if (simulation.program.spans[s].kind == 'S') {
      double& end = ends[index(simulation.program.spans[s].microbatch)];
      end = std::max(end, simulation.times.spans[s].end);
    }
  if (simulation.steps == 1) return ends.front();
  return (ends.back() - ends.front()) / (simulation.steps - 1);
}

void count_bytes(RunSimulation& simulation) {
  std::array<double, kTrafficClasses> messages = {}, bytes = {};
  for (const ProgramMessage& message : simulation.program.messages) {
    messages.at(static_cast<std::size_t>(message.traffic)) += message.flows;
    bytes.at(static_cast<std::size_t>(message.traffic)) += message.bytes;
  }
  for (std::size_t t = 0; t < messages.size(); ++t)
    simulation.sent.at(t) = {
        static_cast<std::uint64_t>(std::llround(messages.at(t) / simulation.steps)),
        static_cast<std::uint64_t>(std::llround(bytes.at(t) / simulation.steps))};
}

}  // namespace

Problems check(const SimulationRequest& r) {
  Problems problems = check(r.hosts);
  if (!problems.empty()) return problems;
  const int ranks = size(mesh_of(r.config)), seats = rank_count(r.hosts);
  if (ranks > seats)
    problems.push_back({"mesh", fmt::format("{} asks for {} ranks, and the hosts have {}",
                                            to_text(mesh_of(r.config)), ranks, seats)});
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
  if (r.config.local.steps > 0)
    problems.push_back(
        {"local.steps", fmt::format("{} local steps are not simulated", r.config.local.steps)});
  if (!row_tables(r.config, r.spec).empty())
    problems.push_back({"embedding.rows", "exchanges of rows are not simulated"});
  return problems;
}

RunProgram program_of(const SimulationRequest& request, const RankClasses& classes, int steps) {
  const std::vector<Seat> seats = seats_by_rank(request);
  ProgramBuilder builder(request.hosts, seats, classes, request.config.run.precision);
  builder.program().segment_bytes = static_cast<double>(request.config.network.segment);
  add_steps(builder, request, steps);
  return std::move(builder.program());
}

RunSimulation simulate(const SimulationRequest& request, const ProgramChange& change) {
  RunSimulation simulation;
  simulation.classes =
      classes_of(mesh_of(request.config), request.hosts, seats_by_rank(request), request.folding);
  simulation.steps = request.config.train.update == UpdateBy::block ? kOverlappingSteps : 1;
  simulation.program = program_of(request, simulation.classes, simulation.steps);
  if (change) change(simulation.program, simulation.classes);
  simulation.times = simulate(simulation.program);
  simulation.step_seconds = seconds_of_step(simulation);
  count_bytes(simulation);
  return simulation;
}

PipelineDecisions decide_for(const RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                             const std::vector<BlockTimes>& blocks) {
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
  std::vector<BlockTimes> times = blocks;
  if (times.empty())
    for (const BlockSpec& block : spec.blocks) {
      const double rate = multiply_adds_of(hosts.groups.front(), config.run.precision);
      const double samples =
          static_cast<double>(config.microbatch_size()) + hosts.groups.front().device.pass_samples;
      const double work = block.multiply_adds * samples;
      times.push_back({rate > 0 ? work / rate : 0, rate > 0 ? 2 * work / rate : 0});
    }
  return decide_pipeline(config, spec, link, [&] { return times; });
}

}  // namespace laconic
