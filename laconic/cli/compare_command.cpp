#include "laconic/cli/compare_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/report/console.hpp"
#include "laconic/study/chart.hpp"
#include "laconic/study/comparison.hpp"

namespace laconic {

namespace {

int chart_columns(const CompareCommand& command) {
  if (command.columns > 0) return command.columns;
  if (!is_live_terminal(stdout)) return 100;
  return std::clamp(static_cast<int>(std::min<std::size_t>(terminal_columns(stdout), 1000)), 40,
                    120);
}

void require_folder_of(const std::string& svg) {
  if (svg.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(svg).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(fmt::format("--svg {}: the folder {} does not exist", svg, folder.string()));
}

// Every folder that is no run is named at once.
std::vector<ComparedRun> read_runs(const std::vector<std::string>& folders) {
  std::vector<ComparedRun> runs;
  Problems problems;
  for (const std::string& folder : folders) try {
      runs.push_back(read_compared_run(folder));
    } catch (const ConfigError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  refuse(problems);
  return runs;
}

}  // namespace

int run_compare(const CompareCommand& command) {
  require_folder_of(command.svg);
  const Comparison comparison = compare_runs(read_runs(command.runs));
  const Figure figure = figure_of(comparison, command.by == "steps");
  fmt::print(
      "{}\n{}", to_text(comparison),
      chart_text(figure,
                 {.columns = chart_columns(command), .rows = 16, .colour = wants_colour(stdout)}));
  if (!command.svg.empty()) write_atomically(command.svg, chart_svg(figure));
  if (!command.json.empty()) write_atomically(command.json, to_json(comparison).dump(2) + "\n");
  return 0;
}

}  // namespace laconic
