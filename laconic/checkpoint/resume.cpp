#include "laconic/checkpoint/resume.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/run/run_folder.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// The folder's own, or, where it has none, what the configuration says.
Family with_boundaries(const Family& found, const RunConfig& config) {
  Projection wanted = projection_in(config);
  // Codes are where the model's stages first ended, on any mesh.
  if (has_boundary_codes(config) && is_code(projection_of(found).basis) && !wanted.is_empty())
    wanted.after = projection_of(found).after;
  if (wanted.is_empty()) return found;
  if (!can_project(found))
    throw ConfigError(
        {{"model.project_after", fmt::format("{} holds a {}, whose boundaries cannot be projected",
                                             config.model.start, to_text(found))}});
  const Family asked = with_projection(found, wanted);
  if (!projection_of(found).is_empty()) {
    refuse(compare(found, asked, config.model.start));
    return found;
  }
  refuse(check(asked));
  return asked;
}

// Codes of a checkpoint are where its stages first ended, on any mesh.
Family with_codes_of(const std::string& checkpoint, const Family& family, const RunConfig& config) {
  if (checkpoint.empty() || !has_boundary_codes(config) || !can_project(family)) return family;
  const Projection found = projection_of(read_family(checkpoint));
  if (found.is_empty() || !is_code(found.basis)) return family;
  Projection wanted = projection_of(family);
  if (wanted.is_empty()) return with_projection(family, found);
  wanted.after = found.after;
  return with_projection(family, wanted);
}

Family configured_family(const RunConfig& config, const DataFacts& data) {
  const ModelSection& m = config.model;
  const DataSizes sizes{.vocabulary = data.vocabulary, .labels = data.labels};
  if (!m.start.empty()) {
    if (is_checkpoint(m.start)) verify_checkpoint(m.start);
    const Family family = read_family(m.start);
    if (m.context > context_of(family))
      throw ConfigError(fmt::format("model.context = {} is more than the {} positions of {}",
                                    m.context, context_of(family), m.start));
    refuse(check_task(family, config));
    return with_head(with_boundaries(family, config), config, sizes);
  }
  if (m.vocabulary == 0 && data.vocabulary == 0)
    throw ConfigError(
        fmt::format("model.vocabulary = 0 and {}.json does not exist: say how many token ids "
                    "the data has",
                    config.data.train));
  return family_of(config, sizes);
}

// Old checkpoints stand in the way: they go once everything else is known to be fine, if the user
// said so.
void replace_old(const RunConfig& config, const std::string& resume, const StartOptions& options,
                 Start& start) {
  refuse(check_vacant(config.run.folder, resume, options.overwrite));
  start.replaced = checkpoints_in_the_way(config.run.folder, resume);
}

std::string newest_good(const std::string& folder, Start& start) {
  const std::string latest = find_latest_checkpoint(folder, start.notes);
  if (latest.empty() && !start.notes.empty())
    throw FileError(folder, "", "no checkpoint there is good:\n" + join(start.notes, "\n"),
                    "--overwrite without --resume begins anew");
  return latest;
}

// The checkpoint to continue from; empty: none.
std::string checkpoint_to_resume(const RunConfig& config, const StartOptions& options,
                                 Start& start) {
  if (options.follows) {
    if (options.resume == kResumeNone) return "";
    if (!is_checkpoint(options.resume))
      throw FileError(options.resume, "", "is where rank 0 goes on from, but cannot be seen here",
                      "use a run.folder that all machines share, or copy the checkpoint there");
    verify_checkpoint(options.resume);
    return options.resume;
  }
  if (options.resume == kResumeAuto) return newest_good(checkpoints_folder(config), start);
  if (options.resume == kResumeNone) {
    replace_old(config, options.resume, options, start);
    return "";
  }
  std::string checkpoint =
      options.resume == kResumeBest ? best_checkpoint(checkpoints_folder(config)) : options.resume;
  if (const std::optional<std::string> meant = checkpoints_meant(checkpoint)) {
    checkpoint = newest_good(*meant, start);
    if (checkpoint.empty()) throw FileError(options.resume, "", "holds no checkpoint");
    replace_old(config, options.resume, options, start);
  } else {
    verify_checkpoint(checkpoint);
    replace_old(config, checkpoint, options, start);
  }
  return checkpoint;
}

// Moments mean something to the algorithm that made them alone; those of adam and adamw are the
// same.
Problems compare_optimisers(const std::string& checkpoint, const RunConfig& config) {
  const auto moments_of = [](OptimiserKind kind) {
    return kind == OptimiserKind::adam ? OptimiserKind::adamw : kind;
  };
  RunConfig before;
  apply_toml(read_checkpoint_info(checkpoint).config_toml, checkpoint, before);
  const OptimiserKind then = before.optimiser.kind, now = config.optimiser.kind;
  if (moments_of(then) == moments_of(now)) return {};
  return {{"optimiser.kind",
           fmt::format("kind = \"{}\", and {} has the moments of \"{}\": go on with that, or begin "
                       "a new run from its weights with model.start",
                       name_in(kOptimiserKindNames, now), checkpoint,
                       name_in(kOptimiserKindNames, then))}};
}

std::vector<std::string> names_of_codes(const Weights& weights) {
  std::vector<std::string> names;
  for (const ParameterSpec& code : codes_of(weights.spec)) names.push_back(code.name);
  return names;
}

void continue_from(const std::string& checkpoint, const RunConfig& config,
                   const StartOptions& options, const Family& family, const RankPart& held,
                   const DataFacts& data, Start& start) {
  const Family found = read_family(checkpoint);
  Problems problems = compare(found, family, checkpoint);
  append(problems, compare_optimisers(checkpoint, config));
  refuse(problems);
  // What is found has its own epsilon, and the run says how its head is trained.
  const DataSizes sizes{.vocabulary = data.vocabulary, .labels = data.labels};
  start.weights = make_empty_weights(with_head(found, config, sizes),
                                     tensor_options(config, options.local_rank), held.blocks,
                                     config.model.context, held.place);
  const std::vector<std::string> missing =
      load_checkpoint(checkpoint, start.weights, start.state, config.optimiser.kind);
  draw_codes(start.weights, static_cast<std::uint64_t>(config.run.seed), missing);
  if (!missing.empty())
    start.notes.push_back(
        fmt::format("learned codes that the checkpoint has not, or in another "
                    "size, begin anew: {} maps on this rank",
                    missing.size()));
  start.from = checkpoint;
  start.is_resumed = true;
  for (const std::string& change : changes_since(checkpoint, config))
    start.notes.push_back("changed since the checkpoint: " + change);
  if (read_checkpoint_info(checkpoint).data_xxh3 != data.xxh3)
    start.notes.push_back("the training data is not what the checkpoint was made with: position " +
                          with_commas(start.state.position) + " now means other samples");
}

}  // namespace

std::string checkpoints_folder(const RunConfig& config) {
  return checkpoints_of(config.run.folder);
}

at::TensorOptions tensor_options(const RunConfig& config, int local_rank) {
  const auto options = at::TensorOptions().dtype(scalar_type_of(config.run.compute_type()));
  if (!config.run.device.is_cuda()) return options.device(at::kCPU);
  const int gpus = count_gpus();
  refuse(check_device(config.run.device, gpus, gpus > 0 ? "" : no_gpu_reason(examine_cuda(), 0)));
  // Sums of gradients by atomic addition come in any order; a resumed run must not.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(config.run.deterministic, /*warn_only=*/true);
  at::globalContext().setFloat32MatmulPrecision(
      config.run.precision == RunPrecision::tf32 ? "high" : "highest");
  cuda::prepare(config.run.deterministic);
  const int gpu = choose_gpu(config.run.device, gpus, local_rank);
  const RunPrecision precision = config.run.precision;
  if (precision == RunPrecision::bfloat16 || precision == RunPrecision::tf32)
    refuse(check_gpu(examine_gpu(gpu), {.bfloat16 = precision == RunPrecision::bfloat16,
                                        .tf32 = precision == RunPrecision::tf32}));
  use_gpu(gpu);
  return options.device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
}

RunConfig read_checkpoint_config(const std::string& checkpoint) {
  RunConfig config;
  apply_toml(read_checkpoint_info(checkpoint).config_toml, checkpoint, config);
  return config;
}

std::vector<std::string> changes_since(const std::string& checkpoint, const RunConfig& config) {
  return differences(read_checkpoint_config(checkpoint), config);
}

Start start_run(const RunConfig& config, const StartOptions& options, const DataFacts& data,
                const HeldBy& held_by) {
  Start start;
  const std::string checkpoint = checkpoint_to_resume(config, options, start);
  const Family family = with_codes_of(checkpoint, configured_family(config, data), config);
  refuse(check(family));
  const ModelSpec spec = model_spec(family, config.model.context);
  refuse(check(spec));
  const RankPart held = held_by ? held_by(family, checkpoint) : RankPart();
  if (!checkpoint.empty()) {
    continue_from(checkpoint, config, options, family, held, data, start);
    return start;
  }
  const at::TensorOptions like = tensor_options(config, options.local_rank);
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  if (config.model.start.empty()) {
    start.weights = make_weights(family, seed, like, held.blocks, config.model.context, held.place);
  } else {
    // What a folder has not of a BERT's head begins anew.
    const bool has_head = !std::holds_alternative<BertShape>(family);
    // Nor of boundaries that it does not project.
    const bool has_all = has_head && projection_of(family).is_empty();
    const std::int64_t tokens = config.model.context;
    start.weights = has_all ? make_empty_weights(family, like, held.blocks, tokens, held.place)
                            : make_weights(family, seed, like, held.blocks, tokens, held.place);
    const std::vector<std::string> left = read_weights(
        config.model.start, start.weights, has_head ? HeadPolicy::same : HeadPolicy::exchangeable);
    draw_codes(start.weights, seed, names_of_codes(start.weights));
    if (!left.empty())
      start.notes.push_back(
          fmt::format("not in {}, so drawn anew: {}", config.model.start, join(left, ", ")));
    start.from = config.model.start;
  }
  start.state.optimiser = make_optimiser_state(start.weights.parameters, config.optimiser.kind);
  return start;
}

}  // namespace laconic
