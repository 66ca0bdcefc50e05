#include "laconic/simulate/run_picture.hpp"

#include <algorithm>

#include "laconic/base/index.hpp"

namespace laconic {

namespace {

constexpr std::string_view kComputeKinds = "FBIW";  // in the order of Op

// Where each rank of that pipeline is in the program, and which of its ranks a class is.
std::vector<int> place_of_class(const RunSimulation& simulation, const Mesh& mesh) {
  std::vector<int> places(index(simulation.classes.count()), -1);
  for (int pp = 0; pp < mesh.pp; ++pp)
    places[index(simulation.classes.class_of[index(rank_of(mesh, {.pp = pp}))])] = pp;
  return places;
}

}  // namespace

Timing timing_of(const RunSimulation& simulation, const Schedule& lowered, const Mesh& mesh) {
  const std::vector<int> places = place_of_class(simulation, mesh);
  const RunProgram& program = simulation.program;
  double begin = 0;
  for (std::size_t s = 0; s < program.spans.size(); ++s)
    if (program.spans[s].kind == 'S' && program.spans[s].microbatch == simulation.steps - 1)
      begin = std::max(begin, simulation.times.spans[s].begin);
  const std::size_t ranks = lowered.by_rank.size();
  Timing timing{.makespan = 0,
                .compute_end = std::vector<double>(ranks, 0),
                .busy = std::vector<double>(ranks, 0),
                .idle = {},
                .live_activations = std::vector<int>(ranks, 0)};
  for (std::size_t s = 0; s < program.spans.size(); ++s) {
    const SpanName& name = program.spans[s];
    const int place = places[index(name.rank)];
    TimeSpan span = simulation.times.spans[s];
    span.begin -= begin;
    span.end -= begin;
    const auto kind = kComputeKinds.find(name.kind);
    if (span.begin < 0 || place < 0) continue;
    timing.makespan = std::max(timing.makespan, span.end);
    if (kind == std::string_view::npos) continue;
    timing.compute.push_back(
        {{static_cast<Op>(kind), name.stage, name.microbatch}, place, span.begin, span.end});
    timing.busy[index(place)] += span.end - span.begin;
    timing.compute_end[index(place)] = std::max(timing.compute_end[index(place)], span.end);
  }
  std::ranges::stable_sort(timing.compute, {},
                           [](const Span& s) { return std::pair(s.rank, s.begin); });
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const ProgramMessage& message = program.messages[m];
    const TimeSpan& span = simulation.times.messages[m];
    if (message.edge < 0 || places[index(message.from)] < 0 || span.begin < begin) continue;
    const bool is_activation = message.traffic == Traffic::pp_activation;
    timing.messages.push_back(
        {{is_activation ? Op::send_activation : Op::send_gradient,
          is_activation ? message.edge : message.edge + 1, message.microbatch},
         places[index(message.from)],
         span.begin - begin,
         span.end - begin});
  }
  std::ranges::stable_sort(timing.messages, {}, &Span::begin);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    timing.idle.push_back(timing.makespan - timing.busy[rank]);
  return timing;
}

RankSpent mean_spent(const RunSimulation& simulation) {
  RankSpent mean;
  double ranks = 0;
  for (const int members : simulation.classes.members) ranks += members;
  for (std::size_t rank = 0; rank < simulation.times.ranks.size(); ++rank) {
    const RankSpent& one = simulation.times.ranks[rank];
    const double share = simulation.classes.members[rank] / ranks / simulation.steps;
    for (std::size_t i = 0; i < one.work.size(); ++i) mean.work.at(i) += share * one.work.at(i);
    for (std::size_t i = 0; i < one.exposed.size(); ++i)
      mean.exposed.at(i) += share * one.exposed.at(i);
    mean.bubble += share * one.bubble;
    mean.idle += share * one.idle;
  }
  return mean;
}

}  // namespace laconic
