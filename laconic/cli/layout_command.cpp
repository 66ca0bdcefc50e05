#include "laconic/cli/layout_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/cli/layout_report.hpp"
#include "laconic/architecture/grid_codes.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/dataset.hpp"
#include "laconic/file/atomic_file.hpp"

namespace laconic {

namespace {

// The configuration with what the words ask for instead.
RunConfig config_for(const LayoutCommand& command, const std::string& presets_folder) {
  RunConfig config = read_config({command.config.path, command.config.sets, presets_folder, false});
  if (!command.tp.empty()) config.mesh.tp = command.tp;
  if (!command.method.empty()) config.tensor.method = *value_in(kTensorMethodNames, command.method);
  if (command.batch > 0) {
    config.train.batch = command.batch * config.mesh.dp;
    config.train.microbatch = command.batch;
  }
  return config;
}

Problems check_vocabulary(RunConfig& config) {
  if (config.model.vocabulary > 0) return {};
  if (!config.data.train.empty() && std::filesystem::exists(config.data.train + ".json"))
    if (const auto sidecar = read_sidecar(config.data.train))
      config.model.vocabulary = sidecar->vocabulary;
  if (config.model.vocabulary > 0) return {};
  return {{"model.vocabulary",
           "neither the configuration nor its data says how many token ids there are: give it, "
           "as in --set model.vocabulary=50257"}};
}

Problems check_subject(RunConfig& config) {
  Problems problems = check_vocabulary(config);
  if (!config.model.start.empty())
    problems.push_back(
        {"model.start", "is a folder, which is not read here: give the sizes in [model]"});
  if (config.data.train.empty()) config.data.train = "none";  // nobody reads it
  append(problems, check(config));
  return problems;
}

void require_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(fmt::format("--svg {}: the folder {} does not exist", path, folder.string()));
}

}  // namespace

int run_layout(const LayoutCommand& command, const std::string& presets_folder) {
  RunConfig config = config_for(command, presets_folder);
  refuse(check_subject(config));
  if (!command.svg.empty()) require_folder(command.svg);
  const Family family = family_of(config, {});
  const Mesh mesh = mesh_of(config);
  const GridPlan plan = grid_plan_of(config, family);
  ModelSpec spec = model_spec(family, context_of(family));
  add_grid_codes(spec, plan);
  const LayoutSubject subject{.name = to_text(family),
                              .spec = std::move(spec),
                              .plan = plan,
                              .mesh = {.tp = mesh.tp, .order = mesh.order},
                              .samples = config.microbatch_size(),
                              .tokens = context_of(family)};
  fmt::print("{}", describe(subject));
  if (!command.svg.empty())
    write_atomically(command.svg, pictures_svg(subject.name, pictures_of(subject)));
  if (!command.json.empty()) {
    nlohmann::ordered_json json = {{"command", "layout"}};
    json.update(to_json(subject));
    write_atomically(command.json, json.dump(2) + "\n");
  }
  return 0;
}

}  // namespace laconic
