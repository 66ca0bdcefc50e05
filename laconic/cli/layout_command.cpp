#include "laconic/cli/layout_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/cli/layout_estimate.hpp"
#include "laconic/cli/layout_report.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/lab/lab_spec.hpp"
#include "laconic/policy/grid_estimate.hpp"
#include "laconic/transport/shape.hpp"

namespace laconic {

namespace {

// The configuration with what the words ask for instead.
RunConfig config_for(const LayoutCommand& command, const std::string& presets_folder) {
  RunConfig config = read_config({command.config.path, command.config.sets, presets_folder, false});
  if (!command.tp.empty()) config.mesh.tp = command.tp;
  if (command.search > 0) config.mesh.tp = "1";  // every grid is checked by itself
  if (!command.method.empty()) config.tensor.method = *value_in(kTensorMethodNames, command.method);
  if (command.batch > 0) {
    config.train.batch = command.batch * config.mesh.dp;
    config.train.microbatch = command.batch;
  }
  return config;
}

void require_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(fmt::format("--svg {}: the folder {} does not exist", path, folder.string()));
}

double bytes_of_rate(const char* option, const std::string& text) {
  const std::optional<std::uint64_t> bits = parse_rate(text);
  if (!bits)
    throw ConfigError(
        fmt::format("{}: '{}' is not a rate from 100kbit to 100gbit, as in 20mbit or "
                    "1.5gbit, nor unshaped",
                    option, text));
  return static_cast<double>(*bits) / 8;
}

// Throws ConfigError where it is no time.
double seconds_of(const std::string& text) {
  if (text.empty()) return 0;
  return std::chrono::duration<double>(parse_shape("latency=" + text).all.latency).count();
}

GridMachine machine_of(const LayoutCommand& command) {
  GridMachine machine{.flops_per_second = command.gflops * 1e9,
                      .bytes_per_second = kTcpShare * bytes_of_rate("--rate", command.rate),
                      .latency = seconds_of(command.latency),
                      .message_seconds = seconds_of(command.overhead),
                      .call_seconds = seconds_of(command.waking),
                      .queue_bytes = command.queue,
                      .loss_seconds = seconds_of(command.loss),
                      .updates_per_second = command.updates * 1e6};
  if (!command.handling.empty())
    machine.handled_bytes_per_second = bytes_of_rate("--handling", command.handling);
  return machine;
}

void write_json(const LayoutCommand& command, const nlohmann::ordered_json& more) {
  if (command.json.empty()) return;
  nlohmann::ordered_json json = {{"command", "layout"}};
  json.update(more);
  write_atomically(command.json, json.dump(2) + "\n");
}

int run_search(const LayoutCommand& command, const RunConfig& config, const Family& family,
               const GridMachine& machine) {
  const auto candidates = search_grids(config, family, command.search, machine);
  fmt::print("{}; {} samples of {} tokens on {} ranks\n{}", to_text(family),
             config.microbatch_size(), context_of(family), command.search,
             describe(candidates, machine));
  write_json(command, {{"model", to_text(family)},
                       {"machine", to_json(machine)},
                       {"candidates", to_json(candidates)}});
  return candidates.front().estimate ? 0 : 2;
}

}  // namespace

int run_layout(const LayoutCommand& command, const std::string& presets_folder) {
  RunConfig config = config_for(command, presets_folder);
  refuse(check_subject(config));
  if (!command.svg.empty()) require_folder(command.svg);
  const Family family = family_of(config, {});
  const bool is_predicted = !command.rate.empty();
  const GridMachine machine = is_predicted ? machine_of(command) : GridMachine();
  if (command.search > 0) return run_search(command, config, family, machine);
  const Mesh mesh = mesh_of(config);
  const GridPlan plan = grid_plan_of(config, family);
  ModelSpec spec = model_spec(family, context_of(family));
  GridPolicy policy = grid_policy_of(config, spec);
  add_grid_codes(spec, plan);
  const LayoutSubject subject{.name = to_text(family),
                              .spec = std::move(spec),
                              .plan = plan,
                              .mesh = {.tp = mesh.tp, .order = mesh.order},
                              .samples = config.microbatch_size(),
                              .tokens = context_of(family),
                              .policy = std::move(policy)};
  fmt::print("{}", describe(subject));
  if (!command.svg.empty())
    write_atomically(command.svg, pictures_svg(subject.name, pictures_of(subject)));
  nlohmann::ordered_json json = command.json.empty() ? nlohmann::ordered_json() : to_json(subject);
  if (is_predicted) {
    const GridEstimate estimate = estimate_grid(config, family, machine);
    fmt::print("{}", describe(estimate, machine, config.microbatches()));
    json["machine"] = to_json(machine);
    json["predicted"] = to_json(estimate);
  }
  write_json(command, json);
  return 0;
}

}  // namespace laconic
