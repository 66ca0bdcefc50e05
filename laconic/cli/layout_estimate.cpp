#include "laconic/cli/layout_estimate.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "laconic/base/text.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

std::string grid_to_text(const std::array<int, 3>& grid) {
  return grid[0] > 0 ? fmt::format("{} x {} x {}", grid[0], grid[1], grid[2]) : "-";
}

// Three digits, so that candidates that are close can be told apart.
std::string seconds_to_text(double seconds) {
  return seconds > 0 ? fmt::format("{:.3g} s", seconds) : "-";
}

std::string memory_to_text(const GridBytesHeld& m) {
  return fmt::format(
      "{} on a rank: parameters {}, gradients {}, optimiser {}, activations {}, gathered {}",
      human_bytes(m.total()), human_bytes(m.parameters), human_bytes(m.gradients),
      human_bytes(m.optimiser), human_bytes(m.activations), human_bytes(m.gathered));
}

std::string reasons_of(const Problems& problems) {
  std::string text = problems.front().what;
  if (problems.size() > 1) text += fmt::format("; and {} more", problems.size() - 1);
  return text;
}

std::string refused_to_text(const std::vector<GridCandidate>& candidates) {
  std::string text;
  for (const GridCandidate& c : candidates)
    if (!c.estimate)
      text += fmt::format("  {} {}: {}\n", name_of(c.method), grid_to_text(c.grid),
                          reasons_of(c.problems));
  return text.empty() ? text : "\nCannot be:\n\n" + text;
}

}  // namespace

std::string to_text(const GridMachine& m) {
  std::vector<std::string> parts;
  parts.push_back(m.bytes_per_second > 0 ? fmt::format("{}/s of messages through each rank's link",
                                                       human_bytes(m.bytes_per_second))
                                         : "links without a limit");
  if (m.latency > 0) parts.push_back(fmt::format("latency {:.4g} ms", 1e3 * m.latency));
  parts.push_back(m.flops_per_second > 0
                      ? fmt::format("{:.4g} GFLOP/s on each rank", m.flops_per_second / 1e9)
                      : "computing left out");
  if (m.handled_bytes_per_second > 0)
    parts.push_back(fmt::format("{}/s handled", human_bytes(m.handled_bytes_per_second)));
  if (m.message_seconds > 0)
    parts.push_back(fmt::format("{:.4g} ms for each message", 1e3 * m.message_seconds));
  if (m.call_seconds > 0)
    parts.push_back(fmt::format("{:.4g} ms for each collective", 1e3 * m.call_seconds));
  if (m.loss_seconds > 0)
    parts.push_back(fmt::format("{:.4g} ms lost where more than {} come from several ranks",
                                1e3 * m.loss_seconds, human_bytes(m.queue_bytes)));
  if (m.updates_per_second > 0)
    parts.push_back(fmt::format("{} parameters/s updated", human_count(m.updates_per_second)));
  return join(parts, ", ");
}

std::string describe(const GridEstimate& e, const GridMachine& machine, std::int64_t microbatches) {
  Table table({{"of a step", Align::left}, {"predicted"}});
  table.add({"computing", seconds_to_text(e.step.compute)});
  if (e.step.handling > 0) table.add({"handling messages", seconds_to_text(e.step.handling)});
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (extent(e.plan.mesh, kTensorAxes.at(axis)) > 1)
      table.add({fmt::format("waiting for {}", name_of(kTensorAxes.at(axis))),
                 seconds_to_text(e.step.exposed.at(axis))});
  table.add({"all", seconds_to_text(e.step.total())});
  table.add({"links busy while it computes", seconds_to_text(e.step.hidden)});
  table.add({"a rank receives, and sends", human_bytes(e.step.bytes)});
  table.add({"collectives, messages", fmt::format("{}, {}", e.step.calls, e.step.messages)});
  return fmt::format("\nPredicted, not measured: {} microbatch{} in a step; {}\n\n{}{}\n",
                     microbatches, microbatches == 1 ? "" : "es", to_text(machine), to_text(table),
                     memory_to_text(e.memory));
}

std::string describe(const std::vector<GridCandidate>& candidates, const GridMachine& machine) {
  Table table({{"method", Align::left},
               {"grid", Align::left},
               {"step"},
               {"computing"},
               {"waiting"},
               {"hidden"},
               {"received"},
               {"collectives"},
               {"memory"}});
  for (const GridCandidate& c : candidates) {
    if (!c.estimate) continue;
    const GridTime& t = c.estimate->step;
    table.add({std::string(name_of(c.method)), grid_to_text(c.grid), seconds_to_text(t.total()),
               seconds_to_text(t.compute + t.handling), seconds_to_text(t.exposed_on_all()),
               seconds_to_text(t.hidden), human_bytes(t.bytes), fmt::format("{}", t.calls),
               human_bytes(c.estimate->memory.total())});
  }
  return fmt::format(
      "Predicted, not measured: {}\n\n{}{}", to_text(machine),
      table.is_empty() ? "No grid can cut this model and its microbatches.\n" : to_text(table),
      refused_to_text(candidates));
}

nlohmann::ordered_json to_json(const GridMachine& m) {
  return {{"flops_per_second", m.flops_per_second},
          {"bytes_per_second", m.bytes_per_second},
          {"latency", m.latency},
          {"handled_bytes_per_second", m.handled_bytes_per_second},
          {"message_seconds", m.message_seconds},
          {"call_seconds", m.call_seconds},
          {"queue_bytes", m.queue_bytes},
          {"loss_seconds", m.loss_seconds},
          {"updates_per_second", m.updates_per_second}};
}

nlohmann::ordered_json to_json(const GridEstimate& e) {
  const GridTime& t = e.step;
  const GridBytesHeld& m = e.memory;
  return {{"seconds", t.total()},
          {"compute_seconds", t.compute},
          {"handling_seconds", t.handling},
          {"exposed_seconds", t.exposed},
          {"hidden_seconds", t.hidden},
          {"bytes", t.bytes},
          {"collectives", t.calls},
          {"messages", t.messages},
          {"memory",
           {{"total", m.total()},
            {"parameters", m.parameters},
            {"gradients", m.gradients},
            {"optimiser", m.optimiser},
            {"activations", m.activations},
            {"gathered", m.gathered}}}};
}

nlohmann::ordered_json to_json(const std::vector<GridCandidate>& candidates) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const GridCandidate& c : candidates) {
    nlohmann::ordered_json row = {{"method", name_of(c.method)}, {"grid", c.grid}};
    if (c.estimate) row["predicted"] = to_json(*c.estimate);
    for (const Problem& p : c.problems) row["problems"].push_back(to_text(Problems{p}));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace laconic
