#include "laconic/cli/simulate_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/index.hpp"
#include "laconic/base/text.hpp"
#include "laconic/report/table.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/simulate/run_picture.hpp"

namespace laconic {

namespace {

constexpr int kMostRanksShown = 16;
constexpr int kMostLinksShown = 8;

std::string milliseconds(double seconds) {
  if (seconds == 0) return "-";
  return seconds < 1 ? fmt::format("{:.4g}", 1e3 * seconds) : fmt::format("{:.0f}", 1e3 * seconds);
}

std::vector<std::pair<std::string, double>> parts_of(const RankSpent& spent) {
  const auto work = [&](WorkKind kind) { return spent.work.at(static_cast<std::size_t>(kind)); };
  std::vector<std::pair<std::string, double>> parts = {{"forward", work(WorkKind::forward)},
                                                       {"backward", work(WorkKind::backward)},
                                                       {"codec", work(WorkKind::codec)},
                                                       {"handling", work(WorkKind::handling)},
                                                       {"update", work(WorkKind::update)},
                                                       {"bubble", spent.bubble},
                                                       {"idle", spent.idle}};
  for (int t = 0; t < kTrafficClasses; ++t)
    parts.emplace_back(fmt::format("{} exposed", name_of(static_cast<Traffic>(t))),
                       spent.exposed.at(index(t)));
  return parts;
}

// Columns are those parts that some rank has.
std::string ranks_table(const RunSimulation& simulation) {
  const auto mean = parts_of(mean_spent(simulation));
  std::vector<Column> columns = {{"ms of a step", Align::left}};
  for (const auto& [name, seconds] : mean)
    if (seconds > 0) columns.push_back({name});
  Table table(columns);
  const auto add = [&](std::string title, const RankSpent& spent, double share) {
    std::vector<std::string> cells = {std::move(title)};
    const auto parts = parts_of(spent);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (mean[i].second > 0) cells.push_back(milliseconds(share * parts[i].second));
    table.add(std::move(cells));
  };
  const int shown = std::min(kMostRanksShown, simulation.classes.count());
  for (int rank = 0; rank < shown; ++rank) {
    const int members = simulation.classes.members[index(rank)];
    const Rank first = simulation.classes.first[index(rank)];
    add(members > 1 ? fmt::format("rank {} and {} like it", first, members - 1)
                    : fmt::format("rank {}", first),
        simulation.times.ranks[index(rank)], 1.0 / simulation.steps);
  }
  add("mean", mean_spent(simulation), 1);
  return to_text(table);
}

std::string classes_table(const RunSimulation& simulation) {
  Table table({{"class", Align::left}, {"messages"}, {"bytes"}, {"exposed ms"}});
  const RankSpent mean = mean_spent(simulation);
  for (int t = 0; t < kTrafficClasses; ++t) {
    const ClassBytes& sent = simulation.sent.at(index(t));
    if (sent.messages == 0) continue;
    table.add({std::string(name_of(static_cast<Traffic>(t))),
               with_commas(static_cast<std::int64_t>(sent.messages)),
               with_commas(static_cast<std::int64_t>(sent.wire_bytes)),
               milliseconds(mean.exposed.at(index(t)))});
  }
  return to_text(table);
}

// The busiest first.
std::vector<std::size_t> links_by_load(const RunSimulation& simulation) {
  std::vector<std::size_t> links;
  for (std::size_t l = 0; l < simulation.times.link_bytes.size(); ++l)
    if (simulation.times.link_bytes[l] > 0) links.push_back(l);
  const auto load = [&](std::size_t l) {
    return simulation.times.link_bytes[l] / simulation.program.network.bytes_per_second[l];
  };
  std::ranges::stable_sort(links, [&](std::size_t a, std::size_t b) { return load(a) > load(b); });
  return links;
}

std::string links_table(const RunSimulation& simulation) {
  Table table({{"link", Align::left}, {"bytes"}, {"busy"}});
  const auto links = links_by_load(simulation);
  for (std::size_t i = 0; i < links.size() && i < kMostLinksShown; ++i) {
    const double bytes = simulation.times.link_bytes[links[i]] / simulation.steps;
    const double rate = simulation.program.network.bytes_per_second[links[i]];
    table.add({simulation.program.network.names[links[i]], human_bytes(bytes),
               fmt::format("{:.1f} %", 100 * bytes / rate / simulation.step_seconds)});
  }
  return table.is_empty() ? "" : "\n" + to_text(table);
}

std::string memory_table(const SimulatedRun& run) {
  Table table({{"memory of a rank", Align::left},
               {"parameters"},
               {"gradients"},
               {"optimiser"},
               {"activations"},
               {"references"},
               {"buffers"},
               {"total"}});
  for (std::size_t pp = 0; pp < run.memory.size(); ++pp) {
    const MemoryEstimate& m = run.memory[pp];
    table.add({run.memory.size() > 1 ? fmt::format("stage rank {}", pp) : "each",
               human_bytes(m.parameters), human_bytes(m.gradients), human_bytes(m.optimiser),
               human_bytes(m.activations), human_bytes(m.references), human_bytes(m.buffers),
               human_bytes(m.total())});
  }
  return to_text(table);
}

nlohmann::ordered_json json_of(const RankSpent& spent, double share) {
  nlohmann::ordered_json json;
  for (const auto& [name, seconds] : parts_of(spent))
    if (seconds > 0) json[name] = share * seconds;
  return json;
}

Trace::Time time_at(double seconds) {
  return Trace::Time(
      std::chrono::duration_cast<Trace::Time::duration>(std::chrono::duration<double>(seconds)));
}

std::string name_of_span(const SpanName& span) {
  if (span.kind == 'S') return "step";
  if (span.kind == 'U') return "update";
  return fmt::format("{}{}{}", span.stage, span.kind, span.microbatch);
}

// What a step is a mean of.
std::string rounds_text(const RunConfig& config) {
  if (config.local.steps == 0) return "";
  const std::string renewed =
      config.local.method == LocalMethod::linear
          ? fmt::format(", one of {} with a step together", config.local.refresh)
          : "";
  return fmt::format("means over rounds of {} local steps by {}{}\n", config.local.steps,
                     name_in(kLocalMethodNames, config.local.method), renewed);
}

}  // namespace

std::string describe(const SimulatedRun& run) {
  const RunSimulation& s = run.simulation;
  return fmt::format(
      "{}\n{} ranks{}; {} samples in {} microbatches of each replica\n"
      "{}{}{}predicted: {:.5g} s a step, {:.4g} samples/s, {:.4g} tokens/s\n\n{}\n{}{}\n{}",
      run.model, s.classes.class_of.size(),
      s.classes.count() < static_cast<int>(s.classes.class_of.size())
          ? fmt::format(", of which {} are simulated and stand for the others", s.classes.count())
          : "",
      run.config.train.batch, run.config.microbatches(), rounds_text(run.config), run.rows,
      run.lanes > 0 ? fmt::format("sums in at most {} lanes\n", run.lanes) : "", s.step_seconds,
      static_cast<double>(run.config.train.batch) / s.step_seconds,
      static_cast<double>(run.tokens) / s.step_seconds, ranks_table(s), classes_table(s),
      links_table(s), memory_table(run));
}

std::string describe(const LostRank& lost, const LossCost& cost, const SimulatedRun& run) {
  const std::int64_t every = run.config.checkpoint.every;
  return fmt::format(
      "\nrank {} lost in step {}: {}, so that {} steps are made again, {:.4g} s, and starting "
      "comes on top\n",
      lost.rank, lost.step,
      every > 0 ? fmt::format("a checkpoint is made every {} steps", every)
                : std::string("checkpoint.every = 0 makes none before the end"),
      cost.repeated_steps, cost.seconds);
}

nlohmann::ordered_json to_json(const SimulatedRun& run) {
  const RunSimulation& s = run.simulation;
  nlohmann::ordered_json json = {
      {"model", run.model},
      {"ranks", s.classes.class_of.size()},
      {"simulated_ranks", s.classes.count()},
      {"step_seconds", s.step_seconds},
      {"steps_in_a_round", std::max<std::int64_t>(1, run.config.local.steps)},
      {"samples_per_second", static_cast<double>(run.config.train.batch) / s.step_seconds},
      {"mean_seconds", json_of(mean_spent(s), 1)}};
  for (std::size_t rank = 0; rank < s.times.ranks.size(); ++rank) {
    nlohmann::ordered_json one = {{"rank", s.classes.first[rank]},
                                  {"stands_for", s.classes.members[rank]}};
    one["seconds"] = json_of(s.times.ranks[rank], 1.0 / s.steps);
    json["by_rank"].push_back(std::move(one));
  }
  if (run.lanes > 0) json["lanes"] = run.lanes;
  json["traffic"] = nlohmann::ordered_json::array();
  for (int t = 0; t < kTrafficClasses; ++t)
    if (s.sent.at(index(t)).messages > 0)
      json["traffic"].push_back({{"class", std::string(name_of(static_cast<Traffic>(t)))},
                                 {"messages", s.sent.at(index(t)).messages},
                                 {"wire_bytes", s.sent.at(index(t)).wire_bytes}});
  json["links"] = nlohmann::ordered_json::array();
  for (const std::size_t l : links_by_load(s))
    json["links"].push_back({{"link", s.program.network.names[l]},
                             {"bytes", s.times.link_bytes[l] / s.steps},
                             {"bytes_per_second", s.program.network.bytes_per_second[l]}});
  for (const MemoryEstimate& m : run.memory)
    json["memory_bytes"].push_back({{"parameters", m.parameters},
                                    {"gradients", m.gradients},
                                    {"optimiser", m.optimiser},
                                    {"activations", m.activations},
                                    {"references", m.references},
                                    {"buffers", m.buffers},
                                    {"total", m.total()}});
  return json;
}

void write_traces(const SimulatedRun& run, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const RunSimulation& s = run.simulation;
  std::vector<std::unique_ptr<Trace>> traces;
  for (const Rank first : s.classes.first) traces.push_back(std::make_unique<Trace>(first));
  for (std::size_t i = 0; i < s.program.spans.size(); ++i) {
    const SpanName& span = s.program.spans[i];
    const bool is_step = span.kind == 'S';
    traces[index(span.rank)]->add(name_of_span(span), is_step ? "step" : "compute",
                                  is_step ? "step" : "compute", time_at(s.times.spans[i].begin),
                                  time_at(s.times.spans[i].end));
  }
  for (std::size_t i = 0; i < s.program.messages.size(); ++i) {
    const ProgramMessage& message = s.program.messages[i];
    traces[index(message.from)]->add(
        fmt::format("{} to {}", name_of(message.traffic), s.classes.first[index(message.to)]),
        "network", "network", time_at(s.times.messages[i].begin), time_at(s.times.messages[i].end),
        {.may_overlap = true, .args = fmt::format("\"wire_bytes\":{}", message.bytes)});
  }
  for (std::size_t rank = 0; rank < traces.size(); ++rank)
    traces[rank]->write(fmt::format("{}/rank-{:05}.json", folder, s.classes.first[rank]));
}

}  // namespace laconic
