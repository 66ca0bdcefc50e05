#include "laconic/cli/plan_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/quantity.hpp"
#include "laconic/cli/plan_report.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/plan/answer.hpp"
#include "laconic/plan/confirm.hpp"
#include "laconic/plan/plan_page.hpp"
#include "laconic/schedule/gantt.hpp"

namespace laconic {

namespace {

// "0.5%", or "0.5".
double budget_of(const std::string& text) {
  constexpr std::array kPercent = {Unit{"", 1}, Unit{"%", 1}, Unit{" %", 1}};
  const std::optional<double> value = parse_quantity(text, kPercent);
  if (!value) throw ConfigError(fmt::format("--loss-budget: '{}' is no share such as 0.5%", text));
  return *value;
}

void require_parent(const char* option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(
        fmt::format("{} {}: the folder {} does not exist", option, path, folder.string()));
}

// What the planner chooses by itself is as nobody had said it.
RunConfig base_of(const PlanCommand& command, const std::string& presets_folder) {
  RunConfig config = read_config({command.config.path, command.config.sets, presets_folder, false});
  const RunConfig fresh;
  config.mesh = fresh.mesh;
  config.tensor.method = fresh.tensor.method;
  config.tensor.table = fresh.tensor.table;
  config.pipeline = fresh.pipeline;
  config.model.recompute = false;
  config.train.microbatch = 0;
  for (const Named<PolicyClass>& one : kPolicyClassNames)
    config = with_policy(config, exact_policy(one.value));
  if (command.batch > 0) config.train.batch = command.batch;
  return config;
}

void write_page(const std::string& path, const PlanAnswers& answers, const PlanRequest& request) {
  const PlanSpace space = space_of(request);
  StepModel model(space);
  PlanPage page{.model = to_text(space.family), .hosts = hosts_text(request.hosts)};
  for (const PlanAnswer& plan : answers.plans) {
    page.names.push_back(describe_plan(space, plan.candidate));
    const StepPicture picture = model.picture(plan.candidate);
    page.pictures.push_back(gantt_svg(picture.schedule, picture.timing, page.names.back()));
  }
  write_atomically(path, plan_page(answers, page));
}

}  // namespace

int run_plan(const PlanCommand& command, const std::string& presets_folder) {
  require_parent("--output", command.output);
  require_parent("--html", command.html);
  const RunConfig base = base_of(command, presets_folder);
  PlanRequest request{
      .base = base,
      .hosts =
          without_bursts(hosts_for(read_hosts(command.hosts, presets_folder), base.model.kind)),
      .policies = read_policies(command.losses.empty() ? presets_folder + "/plan/losses.toml"
                                                       : command.losses),
      .loss_budget = budget_of(command.loss_budget),
      .with_unproven = command.unproven,
      .is_trained = command.trained};
  const bool has_data = !request.base.data.train.empty();
  Problems problems = check_subject(request.base);
  append(problems, check(request));
  refuse(problems);
  const PlanAnswers answers = answer(request, {.top = command.top,
                                               .confirm = simulated_plan,
                                               .with_curves = !command.html.empty(),
                                               .with_what_if = !command.is_quick});
  fmt::print("{}", describe(answers, request, to_text(space_of(request).family)));
  if (!command.json.empty())
    write_atomically(command.json, to_json(answers, request).dump(2) + "\n");
  if (answers.plans.empty()) return kExitRefused;
  if (!command.html.empty()) write_page(command.html, answers, request);
  if (!command.output.empty())
    write_atomically(command.output, plan_file(answers.plans.front(), request, has_data));
  return 0;
}

}  // namespace laconic
