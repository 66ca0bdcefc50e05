#include "laconic/config/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/config/checker.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/projection_choice.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

Mesh mesh_of(const RunConfig& config) {
  return {.pp = static_cast<int>(config.mesh.pp),
          .dp = static_cast<int>(config.mesh.dp),
          .tp = grid_of(config),
          .order = order_of(config)};
}

bool has_ends_apart(const RunConfig& config) {
  return config.mesh.pp > 1 && config.pipeline.schedule != name_of(ScheduleKind::zb_v);
}

RunConfig common_part(RunConfig config) {
  config.run.threads = 0;
  config.run.memory = 0;
  config.run.device = {};
  config.run.folder.clear();
  config.network.interface.clear();
  return config;
}

namespace {

std::int64_t schedule_steps(const OptimiserSection& optimiser, std::int64_t steps) {
  return optimiser.decay_steps > 0 ? optimiser.decay_steps : steps;
}

}  // namespace

OuterStep outer_step(const LocalSection& local) {
  constexpr std::int64_t kLongRound = 30;
  const bool is_short = local.steps < kLongRound || local.method == LocalMethod::sparse_loco;
  const double long_lr = local.method == LocalMethod::streaming_diloco ? 0.4 : 0.7;
  const OuterStep of_length = is_short ? OuterStep{} : OuterStep{long_lr, 0.9};
  return {.lr = local.outer_lr > 0 ? local.outer_lr : of_length.lr,
          .momentum = local.outer_momentum >= 0 ? local.outer_momentum : of_length.momentum};
}

FragmentSpec fragments_of(const LocalSection& local, std::int64_t blocks) {
  FragmentSpec spec{.blocks = blocks, .steps = local.steps};
  if (local.is_spread() && local.steps > 1)  // and embedding and head in one more
    spec.layers = std::max<std::int64_t>(0, (blocks - 2 + local.steps - 2) / (local.steps - 1));
  if (local.method != LocalMethod::streaming_diloco) return spec;
  spec.layers = local.fragment;
  spec.order = local.order;
  spec.overlap = local.overlap;
  return spec;
}

std::int64_t warmup_steps(const OptimiserSection& optimiser, std::int64_t steps) {
  const std::int64_t all = schedule_steps(optimiser, steps);
  return std::min(optimiser.warmup.of(all), all);
}

std::vector<std::string> warnings_of(const RunConfig& config) {
  const std::int64_t all = schedule_steps(config.optimiser, config.train.steps);
  const std::int64_t asked = config.optimiser.warmup.of(all);
  if (asked <= all || config.train.steps == 0) return {};
  return {fmt::format(
      "optimiser.warmup = {} does not fit into the schedule of {} steps: shortened to {}; a share "
      "such as 0.1 follows the schedule",
      asked, all, all)};
}

namespace {

bool is_of_sizes(const Problem& p) {
  return p.where.starts_with("model.") || p.where.starts_with("task.") ||
         p.where.starts_with("train.batch") || p.where.starts_with("train.microbatch") ||
         p.where.starts_with("mesh.");
}

// Whether a model can be counted with all the same: so nothing hides what is wrong with its grid.
bool leaves_sizes(const Problem& p, const RunConfig& config) {
  const ModelSection& model = config.model;
  if (p.where == "model.heads") return model.heads >= 1 && model.heads <= model.width;
  if (p.where == "mesh.pp") return config.mesh.pp >= 1;
  return p.where == "model.key_heads" || p.where == "model.dropout";
}

}  // namespace

Problems check(const RunConfig& config) {
  Checker c;
  check_run(c, config);
  check_model(c, config);
  check_data(c, config);
  check_task(c, config);
  check_train(c, config);
  check_pipeline(c, config);
  check_boundaries(c, config);
  check_embedding_rows(c, config);
  if (config.model.start.empty()) {
    const std::int64_t layers = layers_between(config.model);
    append(c.problems, check_stages(config, layers));
    append(c.problems, check_fragments(config.local, layers + 2));
  }
  check_optimiser(c, config);
  check_evaluate(c, config);
  check_checkpoint(c, config);
  check_network(c, config);
  check_local(c, config);
  check_steering(c, config);
  // What asks for a model's sizes needs one that can be.
  const bool is_model_good = std::ranges::none_of(c.problems, is_of_sizes);
  const bool is_countable = std::ranges::all_of(
      c.problems, [&](const Problem& p) { return !is_of_sizes(p) || leaves_sizes(p, config); });
  const bool has_family = config.model.start.empty() && is_model_good;
  append(c.problems, config.model.start.empty() && is_countable
                         ? check_grid(config, family_of(config, {}))
                         : check_grid_texts(config));
  if (has_family) append(c.problems, check_rows(config, family_of(config, {})));
  if (has_family) append(c.problems, check_projected(config, family_of(config, {})));
  return c.problems;
}

}  // namespace laconic
