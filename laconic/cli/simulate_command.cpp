#include "laconic/cli/simulate_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/cli/simulate_report.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/report/console.hpp"
#include "laconic/schedule/gantt.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/simulate/row_load.hpp"
#include "laconic/simulate/run_picture.hpp"

namespace laconic {

namespace {

int columns_for(const SimulateCommand& command) {
  if (command.columns > 0) return command.columns;
  if (!is_live_terminal(stdout)) return 100;
  return std::max(40, static_cast<int>(std::min<std::size_t>(terminal_columns(stdout), 10000)));
}

Problems check_all(RunConfig& config) {
  Problems problems = check_subject(config);
  if (!problems.empty()) return problems;
  append(problems, check_parallel(config));
  append(problems, check_pipeline(config));
  return problems;
}

void draw(const SimulateCommand& command, const SimulatedRun& run, const Schedule& schedule) {
  if (!command.gantt && command.svg.empty()) return;
  const Schedule whole = lowered(schedule);
  const Timing timing = timing_of(run.simulation, whole, mesh_of(run.config));
  if (command.gantt)
    fmt::print("\n{}",
               gantt_text(whole, timing, {columns_for(command), false, wants_colour(stdout)}));
  if (!command.svg.empty()) write_atomically(command.svg, gantt_svg(whole, timing, run.model));
}

}  // namespace

int run_simulate(const SimulateCommand& command, const std::string& presets_folder) {
  RunConfig config = read_config({command.config.path, command.config.sets, presets_folder, false});
  refuse(check_all(config));
  const Hosts hosts = hosts_for(read_hosts(command.hosts, presets_folder), config.model.kind);
  const Family family = family_of(config, {});
  const GridPlan grid = grid_plan_of(config, family);
  ModelSpec spec = model_spec(family, context_of(family));
  add_grid_codes(spec, grid);
  const Scenario scenario = scenario_of(command.scenario);
  decide_rows_for(config, spec, hosts, command.rows_read);
  const PipelineDecisions decisions = decide_for(config, spec, hosts);
  const SimulationRequest request{
      .config = config,
      .spec = spec,
      .grid = grid,
      .decisions = decisions,
      .hosts = hosts,
      .is_first_epoch = command.first_epoch,
      .rows_read = command.rows_read,
      .folding = command.full || scenario.changes_ranks() ? Folding::never : Folding::automatic,
      .bounds = {.lanes = command.lanes}};
  Problems problems = check(request);
  append(problems, check(command.scenario, size(request.mesh)));
  refuse(problems);
  SimulatedRun run{
      .model = to_text(family),
      .config = config,
      .hosts = hosts,
      .simulation = simulate(
          request, [&](RunProgram& program, const RankClasses&) { apply(scenario, program); }),
      .memory = rank_memory({config, spec, decisions, grid, 0}),
      .tokens = config.train.batch * context_of(family),
      .lanes = command.lanes,
      .rows = describe(row_loads(config, spec, command.rows_read), spec, command.rows_read > 0)};
  fmt::print("{}", describe(run));
  draw(command, run, decisions.schedule);
  nlohmann::ordered_json json = {{"command", "simulate"}};
  json.update(to_json(run));
  if (scenario.lost) {
    const LossCost cost =
        cost_of(*scenario.lost, config.checkpoint.every, run.simulation.step_seconds);
    fmt::print("{}", describe(*scenario.lost, cost, run));
    json["loss"] = {{"repeated_steps", cost.repeated_steps}, {"seconds", cost.seconds}};
  }
  if (!command.trace.empty()) write_traces(run, command.trace);
  if (!command.json.empty()) write_atomically(command.json, json.dump(2) + "\n");
  return 0;
}

}  // namespace laconic
