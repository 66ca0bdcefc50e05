#include "laconic/cli/schedule_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "laconic/report/table.hpp"

namespace laconic {

namespace {

int count(const GradientSends& sends) {
  int selected = 0;
  for (const auto& edge : sends) selected += static_cast<int>(std::ranges::count(edge, true));
  return selected;
}

double makespan_without_messages(const Schedule& lowered, Costs costs) {
  costs.edges.clear();
  costs.latency = 0;
  return estimate(lowered, costs).makespan;
}

std::string seconds(double value) {
  return fmt::format("{:.5g}", value);
}

std::string per_cent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string ranks_table(const TimedSchedule& timed) {
  const Timing& timing = timed.timing;
  Table table({{"rank"}, {"busy"}, {"idle"}, {"share"}, {"last compute"}, {"live activations"}});
  for (std::size_t rank = 0; rank < timing.busy.size(); ++rank)
    table.add({std::to_string(rank), seconds(timing.busy[rank]), seconds(timing.idle[rank]),
               per_cent(timing.makespan > 0 ? timing.idle[rank] / timing.makespan : 0),
               seconds(timing.compute_end[rank]), std::to_string(timing.live_activations[rank])});
  return to_text(table);
}

std::string encoding_line(const TimedSchedule& timed) {
  if (timed.when == When::never) return "";
  return fmt::format("{}: {} of {} gradients encoded, {} s instead of {} s\n", name_of(timed.when),
                     timed.encoded_messages, timed.gradient_messages,
                     seconds(timed.timing.makespan), seconds(timed.without_encoding));
}

}  // namespace

TimedSchedule time_schedule(std::string name, Schedule lowered, Costs costs, When when) {
  TimedSchedule timed{std::move(name), std::move(lowered), std::move(costs), when, {}, 0, 0, 0, 0};
  timed.without_encoding = estimate(timed.lowered, timed.costs).makespan;
  timed.without_messages = makespan_without_messages(timed.lowered, timed.costs);
  timed.costs.encoded = select_gradient_sends(timed.lowered, when, timed.costs);
  timed.encoded_messages = count(timed.costs.encoded);
  timed.gradient_messages = count(select_gradient_sends(timed.lowered, When::always, timed.costs));
  timed.timing = estimate(timed.lowered, timed.costs);
  return timed;
}

double idle_share(const TimedSchedule& timed) {
  const Timing& timing = timed.timing;
  const double idle = std::accumulate(timing.idle.begin(), timing.idle.end(), 0.0);
  const double all = timing.makespan * static_cast<double>(timing.idle.size());
  return all > 0 ? idle / all : 0;
}

double exposed_seconds(const TimedSchedule& timed) {
  return timed.timing.makespan - timed.without_messages;
}

double most_live(const TimedSchedule& timed) {
  return static_cast<double>(std::ranges::max(timed.timing.live_activations)) /
         chunks_of(timed.lowered.shape);
}

std::string describe(const TimedSchedule& timed) {
  const PipelineShape& shape = timed.lowered.shape;
  return fmt::format(
      "{}: {} ranks, {} stages, {} microbatches\n"
      "{} s, {} idle; {} messages, {} s exposed\n{}\n{}",
      timed.name, shape.ranks, shape.stages, shape.microbatches, seconds(timed.timing.makespan),
      per_cent(idle_share(timed)), timed.timing.messages.size(), seconds(exposed_seconds(timed)),
      encoding_line(timed), ranks_table(timed));
}

std::string describe(const std::vector<TimedSchedule>& compared) {
  Table table({{"schedule", Align::left},
               {"seconds"},
               {"idle"},
               {"live activations"},
               {"messages"},
               {"exposed"},
               {"encoded"},
               {"", Align::left}});
  for (const TimedSchedule& timed : compared)
    table.add({timed.name, seconds(timed.timing.makespan), per_cent(idle_share(timed)),
               fmt::format("{:.4g}", most_live(timed)),
               std::to_string(timed.timing.messages.size()), seconds(exposed_seconds(timed)),
               std::to_string(timed.encoded_messages), &timed == compared.data() ? "fastest" : ""});
  return to_text(table);
}

std::string describe(const std::vector<ScheduleCandidate>& candidates,
                     std::optional<std::size_t> taken) {
  Table table({{"schedule", Align::left},
               {"microbatches"},
               {"seconds"},
               {"live activations"},
               {"", Align::left}});
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ScheduleCandidate& c = candidates[i];
    table.add({std::string(name_of(c.kind)), std::to_string(c.microbatches), seconds(c.seconds),
               fmt::format("{:.4g}", c.held),
               taken == i ? "taken" : (c.fits ? "" : "does not fit")});
  }
  return to_text(table);
}

nlohmann::ordered_json to_json(const TimedSchedule& timed) {
  const Timing& timing = timed.timing;
  const PipelineShape& shape = timed.lowered.shape;
  return {{"schedule", timed.name},
          {"ranks", shape.ranks},
          {"stages", shape.stages},
          {"microbatches", shape.microbatches},
          {"makespan_seconds", timing.makespan},
          {"idle_share", idle_share(timed)},
          {"exposed_seconds", exposed_seconds(timed)},
          {"messages", timing.messages.size()},
          {"when", std::string(name_of(timed.when))},
          {"gradient_messages", timed.gradient_messages},
          {"encoded_messages", timed.encoded_messages},
          {"makespan_without_encoding_seconds", timed.without_encoding},
          {"busy_seconds", timing.busy},
          {"idle_seconds", timing.idle},
          {"compute_end_seconds", timing.compute_end},
          {"live_activations", timing.live_activations}};
}

}  // namespace laconic
