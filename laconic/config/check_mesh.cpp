// What keeps [mesh], [pipeline], [local] and [steering] from being followed.
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/config/checker.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

constexpr std::string_view kScheduleFile = "file:";

void check_schedule(Checker& c, const PipelineSection& pipeline) {
  const std::string& schedule = pipeline.schedule;
  c.at_least("pipeline.chunks", pipeline.chunks, 1);
  c.at_most("pipeline.chunks", pipeline.chunks, kMostRanks);
  if (schedule.starts_with(kScheduleFile)) {
    c.require(schedule != kScheduleFile, "pipeline.schedule", "file: has no path behind it");
    return;
  }
  if (pipeline.is_automatic()) return;
  try {
    const ScheduleKind kind = parse_schedule_kind(schedule);
    if (pipeline.chunks < 1) return;
    if (kind == ScheduleKind::interleaved)
      c.require(pipeline.chunks >= 2, "pipeline.chunks",
                fmt::format("chunks = {}: interleaved needs at least 2", pipeline.chunks));
    else if (kind == ScheduleKind::zb_v)
      c.require(pipeline.chunks == 2, "pipeline.chunks",
                fmt::format("chunks = {}: zb_v needs exactly 2", pipeline.chunks));
    else
      c.require(pipeline.chunks == 1, "pipeline.chunks",
                fmt::format("chunks = {}: {} has 1 stage on each rank, only interleaved and zb_v "
                            "have more",
                            pipeline.chunks, schedule));
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems())
      c.require(false, "pipeline.schedule", p.what + "; or auto, or file:PATH");
  }
}

// Interleaved takes microbatches in rounds, one for each rank.
void check_rounds(Checker& c, const RunConfig& config) {
  const std::int64_t pp = config.mesh.pp, dp = config.mesh.dp, batch = config.train.batch;
  const bool is_chosen = config.pipeline.is_automatic() && config.pipeline.chunks > 1;
  const bool is_interleaved =
      config.pipeline.schedule == name_of(ScheduleKind::interleaved) || is_chosen;
  if (!is_interleaved || pp < 1 || dp < 1 || batch < dp) return;
  const std::int64_t local = config.local_batch(), size = config.microbatch_size();
  if (batch % dp != 0 || size < 1 || local % size != 0) return;
  if (is_chosen) {
    c.require(local % pp == 0, "pipeline.schedule",
              fmt::format("auto with chunks = {} can only be interleaved, whose number of "
                          "microbatches mesh.pp = {} divides, and a rank has {} samples",
                          config.pipeline.chunks, pp, local));
    return;
  }
  c.require(config.microbatches() % pp == 0, "pipeline.schedule",
            fmt::format("interleaved needs a number of microbatches that mesh.pp = {} divides, and "
                        "the {} samples of a rank in microbatches of {} make {}",
                        pp, local, size, config.microbatches()));
}

// What a guard can look at, and a shadow be compared with.
void check_guard(Checker& c, const RunConfig& config) {
  const SteeringSection& s = config.steering;
  const std::int64_t local = config.local.steps;
  if (s.guard != GuardMode::off && local > 0)
    c.require(s.every % local == 0, "steering.every",
              fmt::format("every = {} is not a multiple of local.steps = {}: only then do sums "
                          "of changes travel in steps that are looked at",
                          s.every, local));
  if (s.shadow == 0) return;
  c.require(
      local == 0, "steering.shadow",
      fmt::format("shadow = {} with local.steps = {}: every replica follows its own gradient, "
                  "and there is no common one to compare",
                  s.shadow, local));
  c.require(config.dp_gradient.method != GradientMethod::compressed_adam, "steering.shadow",
            fmt::format("shadow = {} with dp.gradient.method = \"compressed_adam\": after warm-up "
                        "moments travel, and there is no common gradient to compare",
                        s.shadow));
}

}  // namespace

void check_pipeline(Checker& c, const RunConfig& config) {
  c.at_least("mesh.pp", config.mesh.pp, 1);
  c.at_most("mesh.pp", config.mesh.pp, kMostRanks);
  check_schedule(c, config.pipeline);
  c.require(!config.pipeline.is_automatic() || !has_grid(config), "pipeline.schedule",
            fmt::format("auto with mesh.tp = \"{}\": blocks are timed on one rank, and on a grid "
                        "several compute one: name a schedule",
                        config.mesh.tp));
  check_rounds(c, config);
}

Problems check_stages(const RunConfig& config, std::int64_t layers) {
  const std::int64_t pp = config.mesh.pp, chunks = config.pipeline.chunks;
  Checker c;
  if (layers < 1 || pp < 1 || pp > kMostRanks || chunks < 1 || chunks > kMostRanks) return {};
  c.require(config.stages() <= layers + 2, "mesh.pp",
            fmt::format("pp = {} with pipeline.chunks = {} makes {} stages of at least one block, "
                        "and the model has {}: {} layers, an embedding and a head",
                        pp, chunks, config.stages(), layers + 2, layers));
  const std::string& text = config.pipeline.split;
  if (text == kSplitAuto || text == kSplitMeasured) return c.problems;
  try {
    for (const Problem& p :
         check_split(parse_split(text), layers, static_cast<int>(config.stages())))
      c.require(false, "pipeline.split", p.what);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems())
      c.require(false, "pipeline.split", p.what + "; or auto, or measured");
  }
  return c.problems;
}

namespace {

void check_linear(Checker& c, const RunConfig& config) {
  const LocalSection& local = config.local;
  c.at_least("local.overlap", local.overlap, 0);
  c.at_least("local.warmup", local.warmup, 0);
  c.at_least("local.refresh", local.refresh, 1);
  if (local.method != LocalMethod::linear) {
    c.require(!local.spread, "local.spread",
              fmt::format("spread = true with method = \"{}\": parts of the model travel at "
                          "different steps in \"linear\", and in \"streaming_diloco\" as "
                          "local.fragment says",
                          name_in(kLocalMethodNames, local.method)));
    c.require(local.overlap == 0 || local.method == LocalMethod::streaming_diloco, "local.overlap",
              fmt::format("overlap = {} with method = \"{}\": ranks go on from what all have "
                          "changed. Use \"linear\" or \"streaming_diloco\"",
                          local.overlap, name_in(kLocalMethodNames, local.method)));
    return;
  }
  c.at_most("local.overlap", local.overlap, local.steps);
  c.require(config.optimiser.kind == OptimiserKind::adamw, "local.method",
            fmt::format("linear shares the second moment of adamw, and optimiser.kind is \"{}\": "
                        "use \"diloco\"",
                        name_in(kOptimiserKindNames, config.optimiser.kind)));
  c.require(local.warmup > 0 && local.warmup % local.steps == 0, "local.warmup",
            fmt::format("warmup = {} is not a positive multiple of local.steps = {}: rounds begin "
                        "after it, with the second moment that it has made",
                        local.warmup, local.steps));
}

// What travels while ranks go on.
void check_overlap(Checker& c, const RunConfig& config) {
  const LocalSection& local = config.local;
  const bool is_streaming = local.method == LocalMethod::streaming_diloco;
  const bool has_copies = local.has_parts();  // a rank's own parameters, and all ranks'
  if (local.overlap == 0 && !has_copies) return;
  const std::string what = is_streaming        ? "method = \"streaming_diloco\""
                           : local.is_spread() ? "spread = true"
                                               : fmt::format("overlap = {}", local.overlap);
  const char* key = is_streaming        ? "local.method"
                    : local.is_spread() ? "local.spread"
                                        : "local.overlap";
  const char* instead = is_streaming        ? "Use \"diloco\""
                        : local.is_spread() ? "Set it to false"
                                            : "Set it to 0";
  c.require(config.mesh.pp == 1, key,
            fmt::format("{} with mesh.pp = {}: parameters that stages share are summed in every "
                        "step, and their changes cannot travel meanwhile. {}",
                        what, config.mesh.pp, instead));
  c.require(!has_copies || !has_grid(config), key,
            fmt::format("{} with mesh.tp = \"{}\": ranks of a grid would have to agree on copies "
                        "of what is under way. {}",
                        what, config.mesh.tp, instead));
  c.require(config.steering.guard == GuardMode::off && config.steering.bypass == BypassMode::never,
            key,
            fmt::format("{} with steering.guard = \"{}\" and steering.bypass = \"{}\": codecs "
                        "cannot be measured or changed while changes travel. Set both to \"off\" "
                        "and \"never\"",
                        what, name_in(kGuardModeNames, config.steering.guard),
                        name_in(kBypassModeNames, config.steering.bypass)));
}

void check_sparse(Checker& c, const RunConfig& config) {
  if (config.local.method != LocalMethod::sparse_loco) return;
  const DpGradientSection& gradient = config.dp_gradient;
  const bool is_plain = gradient.method == GradientMethod::codec && gradient.codec == "raw" &&
                        (gradient.down.empty() || gradient.down == "raw");
  c.require(is_plain, "local.method",
            fmt::format("sparse_loco has a coder of its own, and dp.gradient.method = \"{}\" with "
                        "codec = \"{}\" would never be used: set \"codec\" and \"raw\"",
                        name_in(kGradientMethodNames, gradient.method), gradient.codec));
  c.require(config.run.master_type() == Dtype::f32, "local.method",
            "sparse_loco encodes f32, and run.precision has other masters");
  c.require(
      config.local.outer_momentum <= 0, "local.outer_momentum",
      fmt::format("outer_momentum = {} with method = \"sparse_loco\": what was not sent is its "
                  "momentum, by local.memory",
                  config.local.outer_momentum));
}

}  // namespace

Problems check_fragments(const LocalSection& local, std::int64_t blocks) {
  if (local.steps < 1 || local.fragment < 0 || local.overlap < 0 || blocks < 1) return {};
  Problems problems = check(fragments_of(local, blocks));
  for (Problem& problem : problems)
    problem.where = problem.where == "layers" ? "local.fragment" : "local." + problem.where;
  return problems;
}

void check_local(Checker& c, const RunConfig& config) {
  const LocalSection& local = config.local;
  c.in_range("local.memory", local.memory, 0, 1);
  c.in_range("local.mixing", local.mixing, 0, 1);
  c.at_least("local.fragment", local.fragment, 0);
  c.at_least("local.steps", local.steps, 0);
  c.in_range("local.outer_lr", local.outer_lr, 0, kAnyLarge);
  if (local.outer_momentum != -1) c.in_range("local.outer_momentum", local.outer_momentum, 0, 1);
  if (local.steps < 1) return;
  check_linear(c, config);
  check_overlap(c, config);
  check_sparse(c, config);
  c.require(config.mesh.dp > 1, "local.steps",
            fmt::format("steps = {} with mesh.dp = 1: there is nobody to agree with", local.steps));
  c.require(config.dp_gradient.method != GradientMethod::compressed_adam, "local.steps",
            fmt::format("local updates send changes of the parameters, not what "
                        "dp.gradient.method = \"{}\" sends: use \"codec\" or \"power_sgd\"",
                        name_in(kGradientMethodNames, config.dp_gradient.method)));
  for (const auto& [key, every] : {std::pair{"checkpoint.every", config.checkpoint.every},
                                   {"train.steps", config.train.steps},
                                   {"evaluate.every", config.evaluate.every}})
    c.require(every % local.steps == 0, key,
              fmt::format("{} = {} is not a multiple of local.steps = {}: only then do all ranks "
                          "have the same model",
                          key, every, local.steps));
}

void check_steering(Checker& c, const RunConfig& config) {
  const SteeringSection& steering = config.steering;
  c.at_least("steering.after", steering.after, 2);
  c.at_least("steering.every", steering.every, 1);
  c.at_least("steering.shadow", steering.shadow, 0);
  c.at_least("steering.patience", steering.patience, 1);
  c.in_range("steering.min_cosine", steering.min_cosine, -1, 1);
  c.in_range("steering.max_error", steering.max_error, 0, kAnyLarge);
  c.in_range("steering.max_residual", steering.max_residual, 0, kAnyLarge);
  if (steering.every >= 1 && config.local.steps >= 0) check_guard(c, config);
}

}  // namespace laconic
