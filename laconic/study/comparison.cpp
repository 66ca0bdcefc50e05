#include "laconic/study/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/report/jsonl.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// A step of the log with what has gone before it.
struct RunPoint {
  std::int64_t step = 0;
  double elapsed = 0;
  double loss = 0;  // smoothed
};

// Steps that the log leaves out are taken to last as long as the next one that is there.
std::vector<RunPoint> points_of(const RunLog& log) {
  std::vector<RunPoint> points;
  std::vector<double> losses;
  double elapsed = 0;
  std::int64_t before = 0;
  for (const StepRow& row : log.steps) {
    elapsed += row.seconds * static_cast<double>(row.step - before);
    before = row.step;
    if (!std::isfinite(row.loss)) continue;
    losses.push_back(row.loss);
    const std::size_t count = std::min<std::size_t>(losses.size(), kSmoothedSteps);
    double sum = 0;
    for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
    points.push_back({row.step, elapsed, sum / static_cast<double>(count)});
  }
  return points;
}

// The loss of the last point for which `is_in` holds; NaN where there is none.
template <class Holds>
double last_loss(const std::vector<RunPoint>& points, const Holds& is_in) {
  double loss = std::numeric_limits<double>::quiet_NaN();
  for (const RunPoint& point : points)
    if (is_in(point)) loss = point.loss;
  return loss;
}

std::optional<double> first_seconds(const std::vector<RunPoint>& points, double loss) {
  for (const RunPoint& point : points)
    if (point.loss <= loss) return point.elapsed;
  return std::nullopt;
}

std::string mesh_text(const RunConfig& config) {
  std::vector<std::string> parts;
  if (config.mesh.pp > 1) parts.push_back(fmt::format("pp {}", config.mesh.pp));
  if (config.mesh.dp > 1) parts.push_back(fmt::format("dp {}", config.mesh.dp));
  const std::array<int, 3> grid = grid_of(config);
  if (grid != std::array{1, 1, 1})
    parts.push_back(fmt::format("tp {}x{}x{}", grid[0], grid[1], grid[2]));
  return parts.empty() ? "1 rank" : join(parts, " x ");
}

std::string last_part(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().empty() ? folder : path.filename().string();
}

std::vector<std::string> names_of(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names;
  std::set<std::string> distinct;
  for (const ComparedRun& run : runs) {
    names.push_back(last_part(run.folder));
    distinct.insert(names.back());
  }
  if (distinct.size() == runs.size()) return names;
  for (std::size_t i = 0; i < runs.size(); ++i) names[i] = runs[i].folder;
  return names;
}

// What says only where a run is, or what it leaves behind, makes no difference to it.
std::vector<std::string> differences_between(const RunConfig& first, const RunConfig& other) {
  std::vector<std::string> lines = differences(first, other);
  std::erase_if(lines, [](const std::string& line) {
    return line.starts_with("run.folder:") || line.starts_with("report.") ||
           line.starts_with("checkpoint.");
  });
  return lines;
}

RunColumn column_of(const ComparedRun& run, const std::vector<RunPoint>& points) {
  double seconds = 0, exposed = 0, wire = 0;
  for (const StepRow& row : run.log.steps) {
    seconds += row.seconds;
    exposed += row.exposed_seconds;
    wire += row.wire_bytes;
  }
  const auto count = static_cast<double>(run.log.steps.size());
  RunColumn column{.folder = run.folder,
                   .mesh = mesh_text(run.config),
                   .network = run.config.network.shape,
                   .steps = run.log.steps.back().step};
  column.has_every_step = column.steps == static_cast<std::int64_t>(run.log.steps.size());
  column.seconds = points.empty() ? 0 : points.back().elapsed;
  column.tokens_per_second = seconds > 0 ? run.log.tokens_per_step * count / seconds : 0;
  column.wire_bytes_per_step = wire / count;
  column.exposed_share = seconds > 0 ? exposed / seconds : 0;
  for (const RunPoint& point : points) {
    column.by_seconds.points.push_back({point.elapsed, point.loss, point.loss, point.loss});
    column.by_steps.points.push_back(
        {static_cast<double>(point.step), point.loss, point.loss, point.loss});
  }
  return column;
}

std::int64_t common_validation(const std::vector<ComparedRun>& runs) {
  std::int64_t found = 0;
  for (const ValidationRow& mine : runs[0].log.validations) {
    const bool is_common = std::all_of(runs.begin(), runs.end(), [&](const ComparedRun& run) {
      return std::any_of(run.log.validations.begin(), run.log.validations.end(),
                         [&](const ValidationRow& other) { return other.step == mine.step; });
    });
    if (is_common) found = mine.step;
  }
  return found;
}

std::optional<double> validation_at(const RunLog& log, std::int64_t step) {
  std::optional<double> loss;
  for (const ValidationRow& validation : log.validations)
    if (validation.step == step) loss = validation.loss;
  return loss;
}

void add_notes(Comparison& comparison) {
  for (const RunColumn& run : comparison.runs) {
    if (!run.has_every_step)
      comparison.notes.push_back(fmt::format(
          "{}: the log skips steps (report.every), and seconds between are taken to be like those "
          "that are there",
          run.name));
    for (const std::string& difference : run.differences)
      for (const char* key : {"data.", "model.context:", "model.vocabulary:", "train.batch:"})
        if (difference.starts_with(key))
          comparison.notes.push_back(
              fmt::format("{}: {}: losses are not of the same samples", run.name, difference));
  }
}

}  // namespace

ComparedRun read_compared_run(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw ConfigError(
        fmt::format("{} is not a folder: give the folders of runs, as run.folder "
                    "names them",
                    folder));
  const std::string config = folder + "/config.toml", log = folder + "/log.jsonl";
  for (const std::string& file : {config, log})
    if (!fs::is_regular_file(file))
      throw ConfigError(fmt::format("{} is not the folder of a run: it has no {}{}", folder,
                                    last_part(file),
                                    file == log ? " (report.jsonl may have been false)" : ""));
  ComparedRun run{.folder = folder, .config = {}, .log = {}};
  refuse(apply_toml(MappedFile(config).text(), config, run.config));
  run.log = read_log(kept_lines(MappedFile(log).text(), std::nullopt, log), log);
  const auto is_finite = [](const StepRow& row) { return std::isfinite(row.loss); };
  if (std::none_of(run.log.steps.begin(), run.log.steps.end(), is_finite))
    throw ConfigError(fmt::format("{}: no step with a finite loss is in log.jsonl", folder));
  return run;
}

Comparison compare_runs(const std::vector<ComparedRun>& runs) {
  LACONIC_ASSERT(runs.size() >= 2 && runs.size() <= kMostCurves,
                 fmt::format("{} runs", runs.size()));
  Comparison all;
  std::vector<std::vector<RunPoint>> points;
  const std::vector<std::string> names = names_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    points.push_back(points_of(runs[i].log));
    RunColumn& column = all.runs.emplace_back(column_of(runs[i], points[i]));
    column.name = column.by_seconds.name = column.by_steps.name = names[i];
    column.differences = differences_between(runs[0].config, runs[i].config);
    all.step = i == 0 ? column.steps : std::min(all.step, column.steps);
    all.seconds = i == 0 ? column.seconds : std::min(all.seconds, column.seconds);
    all.loss = i == 0 ? points[i].back().loss : std::max(all.loss, points[i].back().loss);
  }
  all.validation_step = common_validation(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunColumn& column = all.runs[i];
    column.loss_at_step =
        last_loss(points[i], [&](const RunPoint& p) { return p.step <= all.step; });
    column.loss_at_seconds =
        last_loss(points[i], [&](const RunPoint& p) { return p.elapsed <= all.seconds; });
    column.seconds_to_loss = first_seconds(points[i], all.loss);
    if (all.validation_step > 0)
      column.validation_loss = validation_at(runs[i].log, all.validation_step);
  }
  add_notes(all);
  return all;
}

namespace {

// A row of the table, with multiples of the first run where `factor` makes one of two numbers.
class Rows {
 public:
  explicit Rows(const Comparison& comparison) : comparison_(comparison), table_(columns()) {}

  template <class Text>
  void add(const std::string& title, const Text& text) {
    std::vector<std::string> cells = {title};
    for (const RunColumn& run : comparison_.runs) cells.push_back(text(run));
    table_.add(cells);
  }
  // Numbers above 0; "(8.9x)" says how many times as good as the first run's.
  template <class Value, class Text>
  void add_factor(const std::string& title, const Value& value, const Text& text,
                  bool more_is_better) {
    const double first = value(comparison_.runs[0]);
    add(title, [&](const RunColumn& run) {
      const double number = value(run);
      const double factor = more_is_better ? number / first : first / number;
      const bool has_factor = &run != &comparison_.runs[0] && std::isfinite(factor) && factor > 0;
      return text(number) + (has_factor ? fmt::format(" ({:.1f}x)", factor) : "");
    });
  }
  std::string text() const { return to_text(table_); }

 private:
  std::vector<Column> columns() const {
    std::vector<Column> columns = {{"", Align::left}};
    for (const RunColumn& run : comparison_.runs) columns.push_back({run.name, Align::right});
    return columns;
  }

  const Comparison& comparison_;
  Table table_;
};

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "-";
}

void add_speed(const Comparison& c, Rows& rows) {
  rows.add("mesh", [](const RunColumn& run) { return run.mesh; });
  if (std::any_of(c.runs.begin(), c.runs.end(),
                  [](const auto& run) { return !run.network.empty(); }))
    rows.add("network",
             [](const RunColumn& run) { return run.network.empty() ? "as it is" : run.network; });
  rows.add("steps", [](const RunColumn& run) { return with_commas(run.steps); });
  rows.add("time in steps", [](const RunColumn& run) { return human_seconds(run.seconds); });
  rows.add_factor(
      "tokens per second", [](const RunColumn& run) { return run.tokens_per_second; },
      [](double speed) { return with_commas(std::llround(speed)); }, true);
  rows.add_factor(
      "sent in a step, by rank 0", [](const RunColumn& run) { return run.wire_bytes_per_step; },
      [](double bytes) { return bytes > 0 ? human_bytes(bytes) : "-"; }, false);
  rows.add("waiting for the network", [](const RunColumn& run) {
    return run.wire_bytes_per_step > 0 ? fmt::format("{:.0f} %", 100 * run.exposed_share) : "-";
  });
}

}  // namespace

std::string to_text(const Comparison& c) {
  Rows rows(c);
  add_speed(c, rows);
  rows.add(fmt::format("loss after {} steps", with_commas(c.step)),
           [](const RunColumn& run) { return loss_text(run.loss_at_step); });
  if (c.validation_step > 0)
    rows.add(fmt::format("validation loss, step {}", with_commas(c.validation_step)),
             [](const RunColumn& run) {
               return run.validation_loss ? loss_text(*run.validation_loss) : "-";
             });
  rows.add(fmt::format("loss after {}", human_seconds(c.seconds)),
           [](const RunColumn& run) { return loss_text(run.loss_at_seconds); });
  rows.add_factor(
      fmt::format("time to a loss of {}", loss_text(c.loss)),
      [](const RunColumn& run) {
        return run.seconds_to_loss.value_or(std::numeric_limits<double>::quiet_NaN());
      },
      [](double seconds) { return std::isfinite(seconds) ? human_seconds(seconds) : "-"; }, false);
  std::string text = rows.text();
  for (const RunColumn& run : c.runs) {
    if (run.differences.empty()) continue;
    text += fmt::format("\n{} differs from {}:\n", run.name, c.runs[0].name);
    for (const std::string& difference : run.differences) text += fmt::format("  {}\n", difference);
  }
  for (const std::string& note : c.notes) text += fmt::format("note: {}\n", note);
  return text;
}

nlohmann::ordered_json to_json(const Comparison& c) {
  nlohmann::ordered_json json = {{"command", "compare"},
                                 {"step", c.step},
                                 {"seconds", c.seconds},
                                 {"loss", c.loss},
                                 {"validation_step", c.validation_step},
                                 {"notes", c.notes},
                                 {"runs", nlohmann::ordered_json::array()}};
  for (const RunColumn& run : c.runs) {
    nlohmann::ordered_json one = {{"folder", run.folder},
                                  {"name", run.name},
                                  {"mesh", run.mesh},
                                  {"network", run.network},
                                  {"steps", run.steps},
                                  {"has_every_step", run.has_every_step},
                                  {"seconds", run.seconds},
                                  {"tokens_per_second", run.tokens_per_second},
                                  {"wire_bytes_per_step", run.wire_bytes_per_step},
                                  {"exposed_share", run.exposed_share},
                                  {"loss_at_step", run.loss_at_step},
                                  {"loss_at_seconds", run.loss_at_seconds},
                                  {"differences", run.differences}};
    if (run.seconds_to_loss) one["seconds_to_loss"] = *run.seconds_to_loss;
    if (run.validation_loss) one["validation_loss"] = *run.validation_loss;
    json["runs"].push_back(one);
  }
  return json;
}

Figure figure_of(const Comparison& c, bool over_steps) {
  Figure figure;
  figure.name = over_steps ? "loss-by-steps" : "loss-by-seconds";
  figure.title = fmt::format("training loss over {}", over_steps ? "steps" : "seconds of training");
  figure.x_label = over_steps ? "steps" : "seconds";
  figure.y_label = "loss";
  figure.kind = FigureKind::lines;
  for (const RunColumn& run : c.runs)
    figure.curves.push_back(over_steps ? run.by_steps : run.by_seconds);
  return figure;
}

}  // namespace laconic
